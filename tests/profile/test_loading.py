"""Loading: errors with file, line and key; extending; the digest; a cache that spares the imports."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

from pincer_trace.errors import UserError
from pincer_trace.profile import ALLOW, DENY, Facts, Overlay, Places, load, loading
from pincer_trace.profile.compare import Comparison
from pincer_trace.profile.show import available, describe

RULE = '[[rule]]\neffects = ["read"]\npaths = ["/a/**"]\nverdict = "allow"\nreason = "because"\n'
PASS = '[[pass_env]]\nnames = ["X"]\nreason = "because"\n'

BROKER = '[[broker]]\nname = "n"\nupstream = "https://a.example"\nbase_url = "URL"\nvariables = ["KEY"]\n'
SINK = (
    '[[sink]]\nname = "n"\nexe = ["/bin/x"]\noptions = ["-p [0-9]+"]\noperands = ["host"]\npaths = ["/s/*"]\n'
    'reason = "because"\n'
)

SET = '[[set_env]]\nvariables = { X = "1" }\nreason = "because"\n'
EXPECTED = (
    '[[rule]]\neffects = ["connect"]\npaths = ["//a.example:1"]\nverdict = "deny"\nreason = "because"\nexpected = 1\n'
)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            RULE + RULE + RULE.replace("verdict", "verdikt"),
            14,
            "rule 3: key 'verdikt' is not known; did you mean 'verdict'?",
        ),
        ("extend = 'default'\n", 1, "key 'extend' is not known; did you mean 'extends'?"),
        (
            RULE.replace('"allow"', '"alow"'),
            4,
            "rule 1: key 'verdict': 'alow' is none of allow, view, confirm, deny",
        ),
        (RULE + RULE.replace('reason = "because"\n', ""), 6, "rule 2: key 'reason' is missing"),
        (RULE.replace('"because"', "3"), 5, "rule 1: key 'reason': expected str, got int"),
        (RULE.replace('"because"', '" "'), 5, "rule 1: key 'reason': empty"),
        (RULE.replace('"read"', '"raed"'), 2, "key 'effects': 'raed' is no effect; did you mean 'read'?"),
        (RULE.replace('["read"]', "[]"), 2, "key 'effects': an empty list"),
        (RULE.replace('["/a/**"]', "[]"), 3, "key 'paths': an empty list"),
        (RULE.replace('"/a/**"', '\n "/ok",\n "a/b"'), 5, "key 'paths': 'a/b': a path starts with"),
        (RULE.replace("/a/**", ""), 3, "key 'paths': '': an empty path"),
        (RULE.replace("/a/**", "/a**"), 3, "whole components only"),
        (RULE.replace("/a/**", "/[a"), 3, "'[' without ']'"),
        (RULE.replace("/a/**", "/a/../b"), 3, "'.' and '..'"),
        (RULE.replace("/a/**", "{hme}/x"), 3, "placeholder {hme} is not known"),
        (RULE.replace("/a/**", "{home}x"), 3, "after {home} comes '/'"),
        (RULE + 'when = "sometimes"\n', 6, "key 'when': 'sometimes' is none of own"),
        (RULE + 'when = "own-above"\n', 6, "key 'when': 'own-above' needs a component after '**'"),
        (RULE.replace('"allow"', '"deny"') + 'when = "own"\n', 6, "key 'when': only with verdict 'allow'"),
        (RULE.replace('"allow"', '"deny"') + 'when = "git-inert"\n', 6, "key 'when': only with verdict 'allow'"),
        (
            RULE.replace('"allow"', '"view"').replace('["read"]', '["read", "link"]'),
            4,
            "key 'verdict': 'view' is about reading",
        ),
        (RULE.replace('"allow"', '"view"') + 'exe = ["/x"]\n', 6, "key 'exe': not with verdict 'view'"),
        (RULE + 'when = "git-active"\n', 6, "key 'when': not with verdict 'allow'"),
        (EXPECTED.replace("= 1", "= true"), 6, "rule 1: key 'expected': expected int, got bool"),
        (RULE + "expected = 1\n", 6, "key 'expected': only with verdict 'deny'"),
        (RULE.replace("allow", "deny") + "expected = 1\n", 6, "key 'expected': only of exact paths and peers"),
        (EXPECTED.replace("//a.example:1", "//a.example:*"), 6, "key 'expected': only of exact paths and peers"),
        (EXPECTED.replace("//a.example:1", "//10.0.0.0/8:1"), 6, "key 'expected': only of exact paths and peers"),
        (EXPECTED.replace("//a.example:1", "//*:1"), 6, "key 'expected': only of exact paths and peers"),
        (EXPECTED.replace("//a.example:1", "/a/x*/b"), 6, "key 'expected': only of exact paths and peers"),
        (EXPECTED.replace("//a.example:1", "/a/*"), 6, "key 'expected': only of exact paths and peers"),
        (EXPECTED.replace("//a.example:1", "/a/**/b"), 6, "key 'expected': only of exact paths and peers"),
        (EXPECTED.replace("//a.example:1", "/a/*/b"), 3, "key 'expected': not in a file of the work tree"),
        (EXPECTED.replace("//a.example:1", "{homes}/x"), 6, "key 'expected': only of exact paths and peers"),
        (EXPECTED, 3, "key 'expected': not in a file of the work tree"),
        (
            "# [[rule]]\ndescription = '''\n[[rule]]\n'''\n" + RULE + "x = 1\n",
            10,
            "rule 1: key 'x' is not known",
        ),
        ('[settings]\nfloor = "none"\n', 2, "settings: key 'floor': 'none' is none of full"),
        ("[settings]\nhold = 0.5\n", 2, "settings: key 'hold': expected float >= 1.0"),
        ('[settings]\nhold = "long"\n', 2, "settings: key 'hold': expected float, got str"),
        ('[settings]\nudp = "open"\n', 2, "settings: key 'udp': 'open' is none of refused, unpoliced"),
        ('[settings]\nview = "all"\n', 2, "settings: key 'view': 'all' is none of default, lengths, strict-symbolic"),
        ("[settings]\nflor = 1\n", 2, "settings: key 'flor' is not known; did you mean 'floor'?"),
        (PASS.replace("names", "name"), 2, "pass_env 1: key 'name' is not known; did you mean 'names'?"),
        (RULE + PASS + PASS.replace('"X"', "3"), 10, "pass_env 2: key 'names': expected str, got int"),
        (PASS.replace('["X"]', "[]"), 2, "pass_env 1: key 'names': an empty list"),
        (PASS.replace("X", "X=1"), 2, "pass_env 1: key 'names': 'X=1' is no name of a variable"),
        (PASS.replace("X", "*_KEY"), 2, "pass_env 1: key 'names': '*_KEY' is no name of a variable"),
        (PASS + 'command = ["a/b"]\n', 4, "pass_env 1: key 'command': 'a/b': a path starts with"),
        (PASS + "command = []\n", 4, "pass_env 1: key 'command': an empty list"),
        (SET, 2, "set_env 1: key 'variables': 'X=1': no variable that switches something"),
        (SET.replace("X", "LD_DISABLE"), 2, "'LD_DISABLE=1': no variable that switches something"),
        (SET.replace("X", "x_disable"), 2, "'x_disable=1': no variable that switches something"),
        (SET.replace('X = "1"', 'NO_X = "/tmp/x"'), 2, "'NO_X=/tmp/x': not a switch: 0, 1, true"),
        (SET.replace('X = "1"', "NO_X = 1"), 2, "set_env 1: key 'variables': expected str, got int"),
        (BROKER.replace("https:", "http:"), 3, "broker 1: key 'upstream': http only to this machine"),
        (BROKER.replace("https:", "ftp:"), 3, "broker 1: key 'upstream': 'ftp://a.example': neither https:// nor"),
        (BROKER.replace('["KEY"]', '["A=B"]'), 5, "broker 1: key 'variables': 'A=B' is no name of a variable"),
        (BROKER.replace('["KEY"]', '["URL"]'), 4, "broker 1: key 'base_url': it holds no key"),
        (BROKER + 'file = "key"\n', 6, "broker 1: key 'file': an absolute path"),
        (BROKER.replace("upstream", "upstraem"), 3, "broker 1: key 'upstraem' is not known; did you mean 'upstream'?"),
        (
            BROKER + 'arguments = ["-c", "x"]\ncommand = ["/x"]\n',
            6,
            "broker 1: key 'arguments': '{base_url}' stands once",
        ),
        (BROKER + 'needs = ["~/x"]\n', 6, "broker 1: key 'needs': a file, by an absolute path"),
        (BROKER + 'needs = ["x", "y"]\n', 6, "broker 1: key 'needs': a file, by an absolute path"),
        (BROKER + 'arguments = ["{base_url}"]\n', 6, "broker 1: key 'arguments': only with 'command'"),
        (SINK.replace("-p [0-9]+", "p"), 4, "sink 1: key 'options': 'p': an option begins with '-'"),
        (SINK.replace("[0-9]+", "[0-9"), 4, "sink 1: key 'options': '-p [0-9': unterminated character set"),
        (SINK.replace('["host"]', '["("]'), 5, "sink 1: key 'operands': '(': missing )"),
        (SINK.replace('["/bin/x"]', "[]"), 3, "sink 1: key 'exe': an empty list"),
        (SINK.replace('"/s/*"', '"s"'), 6, "sink 1: key 'paths': 's': a path starts with"),
        ("a = 1\na = 2\n", 2, "not TOML"),
        ("\n\na = \n", 3, "not TOML"),
        ("a = 'x", 1, "not TOML"),
        ("# ok\n# \udcff\n", 2, "not UTF-8"),
        ('description = "d"\nextends = "nobody"\n', 2, "key 'extends': no profile is named 'nobody'"),
        ('extends = "./p.toml"\n', 1, "key 'extends': a circle"),
        ('protections = "nobody"\n', 1, "key 'protections': no profile is named 'nobody'"),
        ('\nprotections = "./p.toml"\n', 2, "key 'protections': a circle"),
    ],
)
def test_an_error_names_file_line_and_key(places, write, text, line, words):
    path = write(text)
    with pytest.raises(UserError) as caught:
        load(path, places)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: "), message
    assert words in message
    assert "\n" not in message


def test_what_is_expected_is_part_of_a_profile_but_of_none_in_the_work_tree(places, write, tmp_path):
    """Neither by itself, nor by what it extends, nor from the cache of a run elsewhere."""
    own = tmp_path / "home/.config/pincer-trace/profiles"
    plain = EXPECTED.removesuffix("expected = 1\n")
    for name, text in (("one", plain), ("other", EXPECTED)):
        (own / f"{name}.toml").write_text(text)
    one, other = load("one", places), load("other", places)
    assert [rule.expected for rule in other.matching("connect", b"//a.example:1")] == [1]
    assert one.digest != other.digest
    (difference,) = Comparison(one, other).differences
    assert (difference.verdicts, difference.loosens) == (("deny", "deny as expected"), False)
    assert "connect, as expected: because" in describe(other)
    (rule,) = load(write('extends = "other"\n'), places).matching("connect", b"//a.example:1")
    assert rule.expected
    file, cache = write(EXPECTED), str(tmp_path / "cache")
    elsewhere = Places.of(str(tmp_path), {"HOME": str(tmp_path / "home/other")}, None)
    elsewhere.workspace = os.fsencode(tmp_path / "elsewhere")
    assert load(file, elsewhere, cache_directory=cache)
    for name in (file, write(f'extends = "{file}"\n', "q.toml")):
        with pytest.raises(UserError, match="key 'expected'"):
            load(name, places, cache_directory=cache)


def test_variables_are_passed_to_the_commands_that_are_named(tmp_path, write):
    """By a file and by what it extends; what only lines and comments change has the same digest."""
    base = PASS.replace("X", "BASE_*") + 'command = ["**/{agent,other}"]\n'
    write(base, "base.toml")
    top = write('extends = "./base.toml"\n' + PASS.replace('"X"', '"X", "X", "Y"'), "top.toml")

    def loaded(command: str):
        return load(top, Places(cwd=b"/w", workspace=b"/w", home=b"/h", tmp=b"/tmp", state=b"/s", command=command))

    assert loaded(b"/bin/agent").settings.pass_env == ("BASE_*", "X", "Y")
    assert loaded(b"/bin/agents").settings.pass_env == ("X", "Y")
    before = loaded(b"/bin/agent").digest
    write("# moved\n\n" + base, "base.toml")
    assert loaded(b"/bin/agent").digest == before
    write(base.replace("BASE", "BASIS"), "base.toml")
    assert loaded(b"/bin/agent").digest != before


def test_a_variable_is_set_by_the_last_that_says_so(places, write):
    text = SET.replace("X", "NO_X") + SET.replace("X", "NO_Y").replace("reason", 'command = ["**/one"]\nreason')
    base = write(text, "base.toml")
    plain, taken = (
        load(base, places),
        load(write(f"extends = '{base}'\n" + SET.replace('X = "1"', 'NO_X = ""')), places),
    )
    assert plain.settings.set_env == (("NO_X", "1"),) and taken.settings.set_env == ()
    assert "sets    NO_X=1\n" in describe(plain)
    assert load(write(SET.replace("X", "NO_X")), places).digest != load(write(SET.replace("X", "NO_Z")), places).digest


def test_a_profile_that_is_not_there(places, tmp_path):
    with pytest.raises(UserError, match="no profile is named 'nobody'"):
        load("nobody", places)
    with pytest.raises(UserError, match="No such file"):
        load("./nobody.toml", places)
    with pytest.raises(UserError, match="not a regular file"):
        load(str(tmp_path) + "/", places)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError):
        load(str(tmp_path / "fifo"), places)


@pytest.mark.parametrize("value", ["x", "x:", ":1", "x:99999", "a/b:1", "[x:1"])
def test_a_peer_is_host_and_port(places, value):
    with pytest.raises(UserError, match=r"no port: write pypi\.org:443 for https"):
        load("default", places, overlay=Overlay(allow_net=["a.test:1,pypi.org"]))
    with pytest.raises(UserError, match="--allow-net"):
        load("default", places, overlay=Overlay(allow_net=[value]))


def test_later_files_win_and_circles_over_two_files_are_found(places, write):
    write(RULE + RULE.replace("allow", "deny").replace("/a/**", "/a/b/**"), "base.toml")
    top = write('extends = "./base.toml"\n' + RULE.replace("/a/**", "/a/b/c"), "top.toml")
    profile = load(top, places)
    assert [profile.judge("read", path, Facts()).verdict for path in (b"/a", b"/a/b", b"/a/b/c")] == [
        ALLOW,
        DENY,
        ALLOW,
    ]
    assert profile.judge("read", b"/a/b/c", Facts()).rule.source == f"{top}:4"
    write('extends = "./top.toml"\n', "base.toml")
    with pytest.raises(UserError, match="a circle"):
        load(top, places)


def test_protections_of_another_profile_come_without_its_grants(places, write):
    """Also those that it extends; settings stay behind, and a change of that file is noticed."""
    guard = RULE.replace("allow", "deny").replace("/a/**", "/a/b/**") + "protection = true\n"
    write(guard, "first.toml")
    write('extends = "./first.toml"\n[settings]\nhold = 7\n' + RULE.replace("/a/**", "/c/**"), "base.toml")
    top = write('protections = "./base.toml"\n' + RULE, "top.toml")
    profile = load(top, places)
    verdicts = [profile.judge("read", path, Facts()).verdict for path in (b"/a/x", b"/a/b", b"/c/x")]
    assert verdicts == [ALLOW, DENY, DENY]
    assert profile.judge("read", b"/c/x", Facts()).rule is None
    assert profile.settings.hold == 30
    assert [os.path.basename(path) for path in profile.paths] == ["top.toml", "base.toml", "first.toml"]
    cache = os.path.join(os.fsdecode(places.home), "cache")
    before = load(top, places, cache_directory=cache).digest
    assert load(top, places, cache_directory=cache).digest == before
    write("", "first.toml")
    assert load(top, places, cache_directory=cache).judge("read", b"/a/b", Facts()).verdict == ALLOW


def test_the_users_own_profile_of_a_shipped_name_may_extend_it(places):
    own = os.path.join(os.fsdecode(places.config), "pincer-trace/profiles/default.toml")
    with open(own, "w") as file:
        file.write('description = "mine"\nextends = "default"\n' + RULE.replace("read", "write"))
    profile = load("default", places)
    assert profile.judge("write", b"/a/x", Facts()).verdict == ALLOW
    assert profile.judge("write", os.path.join(places.workspace, b"x"), Facts()).verdict == ALLOW
    assert ("default", "mine", own) in available(places)
    assert "lift" in describe(profile)
    assert own in describe(profile)


def test_a_profile_without_a_description_has_that_of_what_it_extends(places):
    """As `approve --for always` makes it: the list of profiles must not lose its words for it."""
    own = os.path.join(os.fsdecode(places.config), "pincer-trace/profiles/default.toml")
    ((_, shipped, _),) = [each for each in available(places) if each[0] == "default"]
    with open(own, "w") as file:
        file.write('extends = "default"\n')
    assert shipped and ("default", shipped, own) in available(places)


def test_paths_with_special_bytes_are_literal():
    with tempfile.TemporaryDirectory(prefix="pincer-test-") as folder:  # what pytest makes there is open to the run
        above = os.fsencode(os.path.realpath(folder))
        work = above + b"/w{a,b}*[x]\\\xff\n"
        os.mkdir(work)
        places = Places.of(os.fsdecode(work), {"HOME": "/nonexistent"}, None)
        profile = load("default", places)
        assert profile.judge("write", work + b"/x", Facts()).verdict == ALLOW
        assert profile.judge("write", above + b"/wa/x", Facts()).verdict == DENY


def test_the_profile_file_itself_is_closed(places, write):
    path = write('extends = "default"\n')
    assert load(path, places).judge("write", os.fsencode(path), Facts()).verdict == DENY


def test_the_digest_follows_what_decides_and_nothing_else(places, write):
    def digest(text, overlay=None, where=places):
        return load(write(text), where, overlay=overlay).digest

    first = digest(RULE)
    assert digest("# a comment\n\n" + RULE) == first
    changed = [
        digest(RULE.replace("/a/**", "/b/**")),
        digest(RULE.replace("read", "write")),
        digest(RULE.replace("allow", "confirm")),
        digest(RULE.replace("because", "why")),
        digest(RULE + "protection = true\n"),
        digest(RULE + 'when = "own"\n'),
        digest(RULE + 'exe = ["**/x"]\n'),
        digest(RULE + 'command = ["**/x"]\n'),
        digest(RULE + RULE),
        digest(RULE, Overlay(allow_write=["x"])),
        digest(RULE, Overlay(protect=["x"])),
        digest(RULE, where=Places.of(os.fsdecode(places.workspace), {"HOME": "/nonexistent"}, None)),
    ]
    assert len({first, *changed}) == len(changed) + 1


LOAD = """
import sys
from pincer_trace.profile import Facts, Places, load
import os
profile = load(sys.argv[1], Places.of(os.getcwd(), dict(os.environ), None), cache_directory=sys.argv[2])
profile.judge("write", os.fsencode(os.getcwd()) + b"/x.py", Facts())
heavy = {"msgspec", "tomllib", "json", "re", "typing", "dataclasses", "inspect", "pathlib"} & set(sys.modules)
print(profile.digest.hex(), profile.judge("read", b"/a/b", Facts()).verdict, sorted(heavy))
"""


def run(*arguments):
    import pincer_trace

    root = os.path.dirname(os.path.dirname(pincer_trace.__file__))
    site = next(path for path in sys.path if path.endswith("site-packages"))
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": f"{root}:{site}"}
    # -S: an installed .pth may import anything
    command = [sys.executable, "-S", "-c", LOAD, *map(str, arguments)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.split(" ", 2)


def test_a_cache_hit_imports_nothing_heavy_and_says_the_same(places, write, tmp_path):
    cache = tmp_path / "cache"
    base = write(RULE, "base.toml")
    path = write('extends = "./base.toml"\n')
    cold = run(path, cache)
    assert "tomllib" in cold[2]
    (entry,) = os.listdir(cache)
    assert (os.stat(cache).st_mode & 0o777, os.stat(cache / entry).st_mode & 0o777) == (0o700, 0o600)
    warm = run(path, cache)
    assert warm == [*cold[:2], "[]\n"]
    # a change of the file that is extended is seen, although the entry is found by the first one
    with open(base, "a") as file:
        file.write(RULE.replace("allow", "deny"))
    changed = run(path, cache)
    assert (changed[0] != cold[0], changed[1], "tomllib" in changed[2]) == (True, "deny", True)


@pytest.mark.parametrize("harm", ["directory", "file", "content", "link"])
def test_a_cache_that_others_may_have_written_is_not_read(places, write, tmp_path, harm):
    cache = tmp_path / "cache"
    path = write(RULE)
    good = load(path, places, cache_directory=str(cache)).digest
    (entry,) = cache.iterdir()
    assert "tomllib" not in run(path, cache)[2]
    if harm == "directory":
        cache.chmod(0o770)
    elif harm == "file":
        entry.chmod(0o620)
    elif harm == "content":
        data = bytearray(entry.read_bytes())
        data[-1] ^= 1
        entry.write_bytes(data)
    else:
        entry.rename(tmp_path / "moved")
        entry.symlink_to(tmp_path / "moved")
    assert "tomllib" in run(path, cache)[2]
    assert load(path, places, cache_directory=str(cache)).digest == good


def test_what_another_build_of_the_same_version_compiled_is_not_read(places, write, tmp_path, monkeypatch):
    """As after an installation from two commits: what one compiles the other may not understand."""
    path, cache, compiler = write(RULE), str(tmp_path / "cache"), tmp_path / "compiler"
    monkeypatch.setattr(loading, "_COMPILER", str(compiler))
    compiler.write_text("1")
    digest = load(path, places, cache_directory=cache).digest
    (entry,) = os.listdir(cache)
    for number, change in enumerate((lambda: compiler.write_text("22"), lambda: os.utime(compiler, (1, 1))), 2):
        change()
        assert load(path, places, cache_directory=cache).digest == digest
        assert len(os.listdir(cache)) == number
    with open(os.path.join(cache, entry), "wb"):
        pass  # nobody reads that any more
    assert load(path, places, cache_directory=cache).digest == digest


class _AsSink(Facts):
    """A process that is whatever sink is asked about, of that program."""

    def __init__(self, program: bytes, doubt: str = "") -> None:
        self._program = program
        self._doubt = doubt

    def sink_doubt(self, sink) -> str:
        return self._doubt if sink.name == "n" else "another"

    def executable(self) -> bytes:
        return self._program


def test_a_sink_reads_what_is_protected_and_nobody_reads_memory(places, write):
    """Only the program that it names, which is told by the decision; without one, memory is as it was."""
    closed = RULE.replace("/a/**", "/s/*").replace('"allow"', '"deny"') + "protection = true\n"
    open_ = RULE.replace("/a/**", "/**")
    profile = load(write(open_ + closed + SINK), places)
    decision = profile.judge("read", b"/s/key", _AsSink(b"/bin/x"))
    assert decision.verdict == ALLOW and decision.rule is not None and decision.rule.sink is not None
    assert profile.judge("read", b"/s/key", _AsSink(b"/bin/y")).verdict == DENY
    refusal = profile.judge("read", b"/s/key", _AsSink(b"/bin/x", "its doubt"))
    assert refusal.verdict == DENY and refusal.reason == "because (its doubt)"
    assert profile.judge("write", b"/s/key", _AsSink(b"/bin/x")).verdict == DENY
    assert profile.judge("read", b"/s/more/key", _AsSink(b"/bin/x")).verdict == ALLOW  # by the grant, as for all
    assert profile.settled("read", b"/s/key") is None  # so that no cache answers it
    for memory in (b"/proc/7/mem", b"/proc/7/task/8/mem"):
        assert profile.judge("read", memory, Facts()).verdict == DENY
        assert load(write(open_ + closed), places).judge("read", memory, Facts()).verdict == ALLOW
    gone = load(write(open_ + closed + SINK + SINK.replace('["/s/*"]', "[]")), places)
    assert gone.sinks == () and gone.judge("read", b"/s/key", _AsSink(b"/bin/x")).verdict == DENY
