"""How a broker reaches its upstream, and who reaches the broker; what its process can do at all."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import support
from broker.conftest import HANDLE, KEY, Origin, broker

from pincer_trace.kernel import sockdiag


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, by itself its authority, with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "upstream")])
    made = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now, now + datetime.timedelta(1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "certificate.pem"
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file.write_bytes(key.private_bytes(*form) + made.public_bytes(serialization.Encoding.PEM))
    return file


def secure(certificate: Path) -> Origin:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return Origin(lambda plain: context.wrap_socket(plain, server_side=True))


def test_only_the_upstream_that_its_certificate_names(certificate: Path) -> None:
    """By an authority that the machine trusts, for the host of the URL; else not a byte of the request leaves."""
    trusted = {"SSL_CERT_FILE": str(certificate)}
    with secure(certificate) as origin:
        for host, env, words in (
            ("127.0.0.1", {}, "self-signed"),
            ("localhost", trusted, "localhost"),
            ("127.0.0.1", trusted, ""),
        ):
            with broker(f"https://{host}:{origin.port}", env) as started, started.client() as client:
                status, _, body = client.ask()
                if words:
                    assert status == 502 and origin.requests == []
                    assert "certificate is not accepted" in body.decode() and words in body.decode()
                else:
                    assert (status, body) == (200, b"fine")
        assert [request["x-api-key"] for request in origin.requests] == [[KEY]]


def test_by_way_of_a_proxy(certificate: Path) -> None:
    """The one that the environment names, as a tunnel: it sees no request. NO_PROXY counts."""
    seen: list[str] = []
    with secure(certificate) as origin, Origin() as proxy:

        def tunnel(request, line) -> None:
            seen.append(f"{request.method} {request.target} {request['proxy-authorization']}")
            if "refuse" in request["proxy-authorization"][0]:
                line.send(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", origin.port)) as other:
                line.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                relay(line.socket, other)

        proxy.answer = tunnel
        env = {"SSL_CERT_FILE": str(certificate), "HTTPS_PROXY": f"http://u%3A:p@127.0.0.1:{proxy.port}"}
        url = f"https://127.0.0.1:{origin.port}"
        with broker(url, env) as started, started.client() as client:
            assert client.ask()[2] == b"fine"
        assert seen == [f"CONNECT 127.0.0.1:{origin.port} ['Basic dTo6cA==']"]
        with broker(url, env | {"NO_PROXY": "127.0.0.1"}) as started, started.client() as client:
            assert client.ask()[2] == b"fine"
        assert len(seen) == 1 and len(origin.requests) == 2


def relay(one: socket.socket, other: socket.socket) -> None:
    import select

    while True:
        ready, _, _ = select.select([one, other], [], [], 10)
        for each in ready:
            data = each.recv(1 << 16)
            if not data:
                return
            (other if each is one else one).sendall(data)


def test_the_process_can_do_no_more_than_it_must() -> None:
    """As an ordinary user: nobody of that user can look into it; it gains no right, and its filter is on."""
    identity = support.identities()["user"]
    if isinstance(identity, str):
        pytest.skip(identity)
    with Origin() as origin, broker(origin.url, switch=identity.switch, python=identity.python) as started:
        look = f"import os; os.open('/proc/{started.pid}/environ', 0)"
        done = subprocess.run([*identity.switch, identity.python, "-c", look], capture_output=True, text=True)
        assert "PermissionError" in done.stderr
        status = dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{started.pid}/status").read_text().splitlines()
            if ":\t" in line
        )
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert int(status["CapPrm"], 16) == 0
        limits = Path(f"/proc/{started.pid}/limits").read_text()
        assert "Max core file size        0                    0" in limits
        if os.geteuid() == 0:  # somebody else, who has the handle
            with started.client() as client:
                assert client.socket.recv(1) == b"" or pytest.fail("another user was let in")
        words = [identity.python, "-c", ASK, str(started.port), HANDLE]
        done = subprocess.run([*identity.switch, *words], capture_output=True, text=True)
        assert done.stdout == "200", done
        assert len(origin.requests) == 1


ASK = """
import sys, urllib.request
request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/x", headers={"x-api-key": sys.argv[2]})
print(urllib.request.urlopen(request).status, end="")
"""


def test_whose_a_connection_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            host, mine = client.getsockname()
            assert sockdiag.tcp_owner(socket.inet_aton(host), mine, port) == os.geteuid()
            assert sockdiag.tcp_owner(socket.inet_aton(host), mine, 1) is None


PROBE = """
import json, os, socket, sys
from pincer_trace.kernel.confinement import confine_relay
open_, near = int(sys.argv[1]), int(sys.argv[2])
confine_relay([open_])
def tried(what):
    try:
        what()
        return 0
    except OSError as error:
        return error.errno
tries = {
    "named port": lambda: socket.create_connection(("127.0.0.1", open_)),
    "another port": lambda: socket.create_connection(("127.0.0.1", near)),
    "write": lambda: open(sys.argv[3], "w"),
    "bind": lambda: socket.create_server(("127.0.0.1", 0)),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "signal": lambda: os.kill(os.getppid(), 0),
    "trace": lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY),
    "device": lambda: __import__("fcntl").ioctl(0, 0x5413, b"\\0" * 8),
}
print(json.dumps({name: tried(what) for name, what in tries.items()}))
print(json.dumps([len(socket.getaddrinfo("localhost", 80)) > 0]))
"""


def test_p81_what_relays_connects_where_it_must_and_does_nothing_else(tmp_path: Path) -> None:
    with Origin() as one, Origin() as other:
        words = [sys.executable, "-I", "-c", PROBE, str(one.port), str(other.port), str(tmp_path / "file")]
        done = subprocess.run(words, capture_output=True, text=True)
        tries, found = map(json.loads, done.stdout.splitlines())
        assert tries.pop("named port") == 0 and found == [True]
        assert all(tries.values()), tries
