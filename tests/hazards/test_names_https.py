"""Programs that reach hosts by name and HTTPS, as they are installed: git, pip, npm, curl; redirects, proxies. P83"""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
import support
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hazards.net_programs.away import Internet
from hazards.path_programs.tools import folder, give

PUBLIC, PROXY = "93.184.216.34", "93.184.216.35"
NAMES = ("git.test", "index.test", "other.test")
ZONE = {**{name: [PUBLIC] for name in NAMES}, "proxy.test": [PROXY], "proxy2.test": [PROXY]}
SERVERS = [(PUBLIC, 443), (PROXY, 3128)]


def certificate(place: Path) -> tuple[Path, Path]:
    """Of an authority of its own, and of the hosts, with the key behind it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([*map(x509.DNSName, NAMES), x509.IPAddress(ipaddress.ip_address(PUBLIC))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    authority, server = place / "authority.pem", place / "server.pem"
    authority.write_bytes(made)
    authority.chmod(0o644)
    server.write_bytes(made + secret)
    return authority, server


def repository(runner: support.Runner, site: Path) -> None:
    """One with a commit, as plain files."""
    script = f"""set -e
git init -q --bare {site}/r.git; git init -q w; cd w; echo content > file; git add file
git -c user.name=a -c user.email=a@b commit -q -m m; git push -q {site}/r.git HEAD:main
cd {site}/r.git; git symbolic-ref HEAD refs/heads/main; git update-server-info; rm -rf {runner.work}/w"""
    done = runner.native(["sh", "-c", script])
    assert done.status == 0, done


def wheel(site: Path) -> None:
    """The index of pip, with one package."""
    place = site / "simple/parcel"
    place.mkdir(parents=True)
    name = "parcel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place / name, "w") as made:
        made.writestr("parcel.py", "NAME = 'parcel'\n")
        made.writestr("parcel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: parcel\nVersion: 1.0\n")
        made.writestr("parcel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr("parcel-1.0.dist-info/RECORD", "")
    (place / "index.html").write_text(f'<a href="{name}">{name}</a>')


def package(site: Path) -> None:
    """The registry of npm, with one package."""
    source = site / "package"
    source.mkdir()
    told = {"name": "parcel", "version": "1.0.0", "main": "index.js"}
    (source / "package.json").write_text(json.dumps(told))
    (source / "index.js").write_text("module.exports = 'parcel'\n")
    archive = site / "parcel.tgz"
    with tarfile.open(archive, "w:gz") as made:
        made.add(source, "package")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    told["dist"] = {"tarball": "https://index.test/parcel.tgz", "integrity": f"sha512-{digest}"}  # type: ignore[assignment]
    document = {"name": "parcel", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": told}}
    (site / "parcel").write_text(json.dumps(document))


class Site:
    """Files, their servers, and what a run gets of them."""

    def __init__(self, runner: support.Runner) -> None:
        authority, server = certificate(folder(runner, runner.base / "authority"))
        self.files = folder(runner, runner.base / "site")
        self.environment = {
            name: str(authority)
            for name in ("CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "npm_config_cafile")
        }
        self.internet = Internet(runner, ZONE, SERVERS, files=(self.files, server))

    def run(self, runner: support.Runner, lines: list[str], allowed: str) -> tuple[support.Result, list[str]]:
        """What each line of a script said at last."""
        script = "".join(f"({line}) >out 2>&1; echo $?: $(tail -n1 out)\n" for line in lines)
        give(runner, runner.work / "all.sh", script.encode())
        result = self.internet.supervise(
            ["sh", "all.sh"], options=("--quiet", "--allow-net", allowed), env=self.environment
        )
        return result, result.out.splitlines()


GET = "curl -sS -o /dev/null -w '%{http_code} %{num_redirects}\\n'"


def test_p83_git_and_redirects_and_proxies_by_name(runner: support.Runner) -> None:
    """Each host is judged by its name, also behind a redirect; through a proxy, it is the proxy that is."""
    site = Site(runner)
    repository(runner, site.files)
    (site.files / "page").write_text("a page\n")
    lines = [
        "git clone -q https://git.test/r.git c && cat c/file",
        "git clone -q https://other.test/r.git d",
        "git ls-remote https://git.test/to/git.test/r.git main | cut -f2",
        f"{GET} -L https://git.test/to/index.test/page",
        f"{GET} -L https://git.test/to/other.test/page",
        f"{GET} https://{PUBLIC}/page",
        f"HTTPS_PROXY=http://proxy.test:3128 {GET} https://other.test/page",
        f"HTTPS_PROXY=http://proxy2.test:3128 {GET} https://git.test/page",
        "HTTPS_PROXY=http://proxy.test:3128 git ls-remote https://other.test/r.git main | cut -f2",
    ]
    result, said = site.run(runner, lines, "{git,index}.test:443,proxy.test:3128")
    assert [line.partition(":")[0] for line in said] == ["0", "128", "0", "0", "7", "7", "0", "7", "0"], result
    assert said[0] == "0: content" and "Failed to connect to other.test port 443" in said[1]
    assert said[2] == said[8] == "0: refs/heads/main" and said[3] == "0: 200 1" and said[6] == "0: 200 0"
    refused = {entry["path"] for entry in result.denied() if entry["effect"] == "connect"}
    assert refused == {"//other.test:443", f"//{PUBLIC}:443", "//proxy2.test:3128"}
    reached = {
        entry["path"] for entry in result.decisions if entry["effect"] == "connect" and entry["outcome"] == "done"
    }
    assert reached == {"//git.test:443", "//index.test:443", "//proxy.test:3128"}
    assert site.internet.saw("proxied") == {"other.test:443"}
    assert site.internet.saw("asked") == {"git.test", "index.test", "proxy.test"}


@pytest.mark.slow
def test_p83_pip_and_npm_by_name(runner: support.Runner) -> None:
    """From an index and a registry that are allowed, and from none that is not."""
    if shutil.which("npm") is None:
        pytest.skip("npm is missing (Debian package npm)")
    site = Site(runner)
    wheel(site.files)
    package(site.files)
    pip = "$PYTHON -m pip install -q --no-deps --disable-pip-version-check --retries 0 --target"
    npm = "npm install --no-audit --no-fund --loglevel=error --no-update-notifier --fetch-retries=0"
    lines = [
        f"{pip} p --index-url https://index.test/simple parcel && grep -o parcel p/parcel.py",
        f"{pip} q --index-url https://other.test/simple parcel",
        f"mkdir n && cd n && {npm} --registry https://index.test/ parcel && node -p 'require(\"parcel\")'",
        f"mkdir m && cd m && {npm} --registry https://other.test/ parcel",
    ]
    result, said = site.run(runner, lines, "index.test:443")
    assert said[0] == "0: parcel" and said[2] == "0: parcel", result
    assert not said[1].startswith("0:") and not said[3].startswith("0:"), result
    assert {entry["path"] for entry in result.denied() if entry["effect"] == "connect"} == {"//other.test:443"}
    assert site.internet.saw("asked") == {"index.test"}
