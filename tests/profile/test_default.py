"""The default profile: what an agent can do in each kind of folder, and what stays closed (P52, P66, P86)."""

from __future__ import annotations

import os
import subprocess

import pytest

from pincer_trace import effects
from pincer_trace.profile import ALLOW, CONFIRM, DENY, Facts, Overlay, Places, load


class Known(Facts):
    """Facts as the engine has them: what the tree created, what a new git configuration changes."""

    def __init__(self, created=(), keys=None, exe=b""):
        self.created = {os.fsencode(path) for path in created}
        self.keys = keys
        self.exe = exe
        self.path = b""

    def created_by_tree(self, below):
        return self.directory_created_by_tree(self.path, below)

    def directory_created_by_tree(self, directory, below):
        while directory != below and directory.startswith(below):
            if directory in self.created:
                return True
            directory = os.path.dirname(directory)
        return False

    def git_config_changes(self):
        return self.keys

    def executable(self):
        return self.exe


class House:
    """A home with a work tree, a linked work tree and a plain folder, all real."""

    def __init__(self, root):
        self.root = os.fsencode(root)
        self.cache = str(root / "cache")
        self.profiles = {}
        self.home = root / "home"
        self.main = self.home / "project"
        self.linked = self.home / "linked"
        self.plain = self.home / "plain"
        (self.home / ".local/bin").mkdir(parents=True)
        self.plain.mkdir()
        self.git("init", "-q", self.main)
        self.git("-C", self.main, "commit", "-q", "--allow-empty", "-m", "one")
        self.git("-C", self.main, "worktree", "add", "-q", self.linked)

    def git(self, *arguments):
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *identity, *arguments], env=environ, check=True, capture_output=True)

    def environ(self):
        return {"HOME": str(self.home), "PATH": f"{self.home}/.local/bin:/usr/bin", "TMPDIR": "/var/tmp"}

    def places(self, cwd, command=None):
        return Places.of(str(cwd), self.environ(), command)

    def moved(self, path):
        """Judging is pure, so the house is judged as if it did not lie in a temporary directory."""
        return os.fsencode(path).replace(self.root, b"/srv/house")

    def profile(self, cwd, command=None, overlay=None):
        options = overlay and (overlay.allow_write, overlay.protect)
        key = repr((cwd, command, options))
        if key not in self.profiles:
            places = self.places(cwd, command)
            for name in Places.__slots__:
                value = getattr(places, name)
                if isinstance(value, tuple):
                    setattr(places, name, tuple(self.moved(path) for path in value))
                elif value is not None:
                    setattr(places, name, self.moved(value))
            self.profiles[key] = load("default", places, overlay=overlay, cache_directory=self.cache)
        return self.profiles[key]

    def judge(self, cwd, effect, path, facts=None, command=None, overlay=None):
        facts = facts or Known()
        facts.path = self.moved(path)
        facts.created = {self.moved(place) for place in facts.created}
        facts.exe = self.moved(facts.exe)
        return self.profile(cwd, command, overlay).judge(effect, facts.path, facts).verdict


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    return House(tmp_path_factory.mktemp("house"))


@pytest.fixture(scope="module", params=["main", "linked", "plain"])
def cwd(house, request):
    return getattr(house, request.param)


def test_the_places_of_each_kind_of_folder(house):
    (house.main / "deep/er").mkdir(parents=True)
    common = os.fsencode(house.main / ".git")
    main = house.places(house.main / "deep/er")
    assert (main.workspace, main.git_common_dir) == (os.fsencode(house.main), common)
    linked = house.places(house.linked)
    assert (linked.workspace, linked.git_common_dir) == (os.fsencode(house.linked), common)
    plain = house.places(house.plain)
    assert (plain.workspace, plain.git_common_dir) == (os.fsencode(house.plain), None)
    assert main.path_dirs == (os.fsencode(house.home / ".local/bin"),) or os.geteuid() == 0


def test_a_pointer_that_the_repository_does_not_confirm_grants_nothing(house, tmp_path):
    forged = house.home / "forged"
    forged.mkdir(exist_ok=True)
    for target in (house.main / ".git", house.main / ".git/worktrees/linked", house.home / ".local"):
        (forged / ".git").write_text(f"gitdir: {target}\n")
        places = house.places(forged)
        assert (places.workspace, places.git_common_dir) == (os.fsencode(forged), None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what another user owns")
def test_a_repository_planted_by_another_user_is_no_work_tree(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / ".git").mkdir()
    assert Places.of(str(tmp_path / "work"), {"HOME": "/root"}, None).workspace == os.fsencode(tmp_path)
    os.chown(tmp_path / ".git", 12345, 12345)
    assert Places.of(str(tmp_path / "work"), {"HOME": "/root"}, None).workspace == os.fsencode(tmp_path / "work")


def test_more_directories_of_ours_are_closed(tmp_path):
    places = Places.of(str(tmp_path), {"HOME": "/root"}, None, extra=[str(tmp_path / "sessions/1")])
    profile = load("default", places)
    verdicts = [
        profile.judge("write", os.fsencode(tmp_path / p), Facts()).verdict for p in ("sessions/1/x", "sessions/2")
    ]
    assert verdicts == [DENY, ALLOW]
    assert any(rule.source == "built in" for rule in profile.below("rename", os.fsencode(tmp_path / "sessions")))


def test_a_submodule_and_a_home_that_is_a_repository(house, tmp_path):
    top, module = tmp_path / "top", tmp_path / "top/.git/modules/sub"
    house.git("init", "-q", top)
    module.parent.mkdir()
    house.git("init", "-q", "--separate-git-dir", module, top / "sub")
    house.git("--git-dir", module, "config", "core.worktree", "../../../sub")
    places = house.places(top / "sub")
    assert (places.workspace, places.git_common_dir) == (os.fsencode(top / "sub"), os.fsencode(module))
    places = Places.of(str(top / "sub/.."), {"HOME": str(top)}, None)
    assert places.workspace == os.fsencode(top)


def test_work_is_allowed(house, cwd):
    for path in (
        "a.py",
        "src/b",
        ".gitignore",
        "node_modules/x/.vscode/settings.json",
        ".venv/bin/python",
        "CLAUDE.md",
    ):
        for effect in effects.CHANGES:
            assert house.judge(cwd, effect, cwd / path) == ALLOW, (effect, path)
    for path in (
        house.home / ".cache/pip/x",
        house.home / ".npm/_cacache/x",
        house.home / ".cargo/registry/src/y",
    ):
        assert house.judge(cwd, "write", path) == ALLOW
    for path in (
        "/etc/passwd",
        "/usr/bin/env",
        house.home / ".gitconfig",
        house.home / ".ssh/id_rsa.pub",
        "/dev/shm/x",
        "/dev",
    ):
        assert house.judge(cwd, "read", path) == ALLOW, path
    for path in (
        "/dev/null",
        "/dev/pts/3",
        "/dev/tty",
        "/proc/1/comm",
        "/proc/1/task/2/comm",
        "/proc/1/attr/exec",
    ):
        assert house.judge(cwd, "write", path) == ALLOW, path


def test_the_repository_is_written_and_its_dangerous_parts_are_asked_about(house):
    git = house.main / ".git"
    for cwd in (house.main, house.linked):
        for path in (
            "index.lock",
            "objects/ab/cd",
            "refs/heads/x",
            "HEAD",
            "logs/HEAD",
            "config.lock",
            "worktrees/linked/index",
        ):
            assert house.judge(cwd, "create", git / path) == ALLOW, path
        for path in (
            "hooks/pre-commit",
            "config",
            "config.worktree",
            "modules/a/config",
            "modules/a/hooks/x",
            "commondir",
        ):
            assert house.judge(cwd, "create", git / path) == CONFIRM, path
        assert house.judge(cwd, "create", git / "hooks/pre-push.sample") == ALLOW
    assert house.judge(house.plain, "create", git / "index.lock") == DENY


@pytest.mark.parametrize(
    "path",
    [
        ".bashrc",
        ".zshenv",
        ".profile",
        ".config/fish/config.fish",
        ".config/systemd/user/x.service",
        ".config/autostart/x.desktop",
        ".local/bin/tool",
        ".local/lib/python3.11/site-packages/x.pth",
        ".gitconfig",
        ".config/git/config",
        ".ssh/authorized_keys",
        ".ssh/config",
        ".npmrc",
        ".pypirc",
        ".config/pip/pip.conf",
        ".claude/settings.json",
        ".codex/config.toml",
        ".aws/credentials",
        ".vimrc",
        "bin/x",
    ],
)
def test_every_verb_is_closed_on_what_the_user_runs_or_hides(house, path):
    for cwd in (house.home, house.main):  # in the home itself, the work tree's own rule would allow
        for effect in effects.CHANGES:
            assert house.judge(cwd, effect, house.home / path) in {CONFIRM, DENY}, effect


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".git/hooks",
        ".git/config",
        ".git",
        ".vscode/tasks.json",
        ".idea/workspace.xml",
        ".envrc",
        ".mcp.json",
        ".claude/settings.local.json",
        "x.code-workspace",
        "sub/.git/hooks/post-checkout",
        "bare.git/hooks/update",
    ],
)
def test_every_verb_is_asked_about_on_what_runs_by_itself(house, path):
    facts = Known(
        created=[
            house.main / "unrelated",
            house.main / ".git/hooks",
            house.main / ".vscode",
            house.main / ".claude",
        ]
    )
    for effect in effects.CHANGES:
        if path == ".git" and effect in {"create", "mkdir", "symlink", "utime"}:
            continue  # there is one, so nothing can be created; times decide nothing
        if path == ".git/config" and effect == "chmod":
            continue
        assert house.judge(house.main, effect, house.main / path, facts) == CONFIRM, effect


@pytest.mark.parametrize("home", ["/root", "/home/somebody"])
@pytest.mark.parametrize(
    "path",
    [
        ".ssh/id_ed25519",
        ".ssh/deploy",
        ".aws/credentials",
        ".config/gcloud/x/y",
        ".azure/x",
        ".kube/config",
        ".docker/config.json",
        ".netrc",
        ".git-credentials",
        ".config/git/credentials",
        ".npmrc",
        ".pypirc",
        ".gnupg/private-keys-v1.d/a.key",
        ".config/gh/hosts.yml",
        ".local/share/keyrings/login.keyring",
        ".bash_history",
        ".mozilla/firefox/x/logins.json",
        ".config/chromium/Default/Cookies",
        ".codex/auth.json",
        ".claude/.credentials.json",
    ],
)
def test_secrets_of_any_home_are_not_read(house, home, path):
    assert house.judge(house.main, "read", f"{home}/{path}") == DENY
    assert house.judge(house.main, "link", f"{home}/{path}") == DENY
    assert house.judge(house.main, "read", house.home / path) == DENY


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/etc/gshadow-", "/etc/ssh/ssh_host_rsa_key", "/dev/sda", "/dev/mem", "/dev/kvm"]
)
def test_secrets_of_the_system_are_not_read(house, path):
    assert house.judge(house.main, "read", path) == DENY


@pytest.mark.parametrize(
    "path",
    [
        "/etc/hosts",
        "/usr/lib/x",
        "/opt/x",
        "/var/lib/x",
        "/proc/sys/kernel/x",
        "/sys/x",
        "/dev/sda",
        "/dev/shmx",
    ],
)
def test_elsewhere_nothing_changes(house, cwd, path):
    for effect in effects.CHANGES:
        assert house.judge(cwd, effect, path) == DENY, effect


def test_the_root_as_work_tree_keeps_the_protections(house):
    assert house.judge("/", "write", "/srv/x") == ALLOW
    for path in ("/dev/sda", "/proc/sys/kernel/core_pattern", "/sys/power/state"):
        assert house.judge("/", "write", path) == DENY
    for path in ("/etc/cron.d/x", "/root/.bashrc", "/etc/ld.so.preload", "/lib/systemd/system/x.service"):
        assert house.judge("/", "create", path) == CONFIRM


@pytest.mark.parametrize("directory", ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"])
def test_temporary_directories_are_shared_with_care(house, directory):
    path = f"{directory}/d/x"
    assert house.judge(house.main, "create", path) == ALLOW
    for effect in ("write", "unlink", "rename", "chmod", "truncate"):
        assert house.judge(house.main, effect, path) == DENY
        assert house.judge(house.main, effect, path, Known(created=[path])) == ALLOW
        assert house.judge(house.main, effect, path, Known(created=[f"{directory}/d"])) == ALLOW


def test_a_repository_of_the_tree_has_its_hooks(house, cwd):
    new = cwd / "new/.git"
    facts = Known(created=[cwd / "new", new])
    assert house.judge(cwd, "mkdir", new) == ALLOW
    for path in ("hooks", "hooks/pre-commit", "modules/a/hooks/x"):
        assert house.judge(cwd, "create", new / path, facts) == ALLOW
    # where only `.git` was there before, what the tree made in it or moves into it is no repository of its own
    facts = Known(created=[new / "hooks", new / "hooks/pre-commit"])
    assert house.judge(cwd, "rename", new / "hooks/pre-commit", facts) == CONFIRM
    assert house.judge(cwd, "mkdir", cwd / ".git", Known()) == ALLOW
    facts = Known(created=[cwd / "new"])
    assert house.judge(cwd, "create", cwd / "new/.vscode/tasks.json", facts) == ALLOW
    assert house.judge(cwd, "create", cwd / "new/.mcp.json", facts) == ALLOW


def test_an_exception_to_a_protection_grants_nothing(house):
    other = house.home / "other"
    for effect, path in (
        ("write", ".git/hooks/x.sample"),
        ("mkdir", ".git"),
        ("write", "node_modules/x/.vscode/settings.json"),
    ):
        assert house.judge(house.main, effect, other / path) == DENY
    assert house.judge(house.main, "rename", other / ".git/config", Known(keys=frozenset({"user.name"}))) == DENY


def test_git_configuration_is_judged_by_content(house):
    profile = house.profile(house.main)
    for path in (".git/config", ".git/worktrees/linked/config.worktree", ".git/modules/a/b/config"):
        target = house.moved(house.main / path)
        for effect in ("rename", "write", "create"):
            assert (
                profile.judge(effect, target, Known(keys=frozenset({"remote.origin.url", "branch.x.merge"}))).verdict
                == ALLOW
            )
            decision = profile.judge(effect, target, Known(keys=frozenset({"user.name", "core.fsmonitor"})))
            assert (decision.verdict, "core.fsmonitor" in decision.reason) == (CONFIRM, True)
            assert profile.judge(effect, target, Known()).verdict == CONFIRM
        assert profile.judge("symlink", target, Known(keys=frozenset())).verdict == CONFIRM


def test_environment_files_are_asked_about(house, cwd):
    for effect in ("read", "rename", "link"):
        assert house.judge(cwd, effect, cwd / "a/.env") == CONFIRM
        assert house.judge(cwd, effect, cwd / ".env.local") == CONFIRM
        assert house.judge(cwd, effect, cwd / ".env.example") == ALLOW
    assert house.judge(cwd, "read", cwd / ".env", Known(created=[cwd / ".env"])) == ALLOW
    assert house.judge(cwd, "read", cwd / ".envoy") == ALLOW


def test_an_agent_has_its_own_state_and_login_alone(house):
    claude = house.home / "node_modules/@anthropic-ai/claude-code/bin/claude.exe"
    claude.parent.mkdir(parents=True)
    claude.touch()
    state, login = house.home / ".claude/projects/x.jsonl", house.home / ".claude/.credentials.json"
    itself = Known(exe=os.fsencode(claude))
    assert house.judge(house.main, "write", state) == DENY
    assert house.judge(house.main, "write", state, command=str(claude)) == ALLOW
    assert house.judge(house.main, "rename", house.home / ".claude.json", itself, command=str(claude)) == ALLOW
    assert (
        house.judge(house.main, "write", house.home / ".claude/settings.json", itself, command=str(claude)) == CONFIRM
    )
    assert house.judge(house.main, "read", login, itself, command=str(claude)) == ALLOW
    assert house.judge(house.main, "read", login, Known(exe=b"/usr/bin/cat"), command=str(claude)) == DENY
    assert house.judge(house.main, "read", login, itself, command="/usr/bin/env") == DENY
    assert house.judge(house.main, "read", house.home / ".codex/auth.json", itself, command=str(claude)) == DENY


def test_pincer_trace_itself_is_closed_whatever_is_allowed(house):
    import pincer_trace

    package = os.path.dirname(pincer_trace.__file__)
    overlay = Overlay(allow_write=["/", package])
    for cwd in (package, "/", house.main):
        for path in (
            f"{package}/cli.py",
            f"{house.home}/.local/state/pincer-trace/x",
            f"{house.home}/.config/pincer-trace/profiles/a.toml",
        ):
            for effect in effects.CHANGES:
                assert house.judge(cwd, effect, path, Known(created=["/"]), overlay=overlay) == DENY


def test_options(house):
    home = house.home

    def judge(effect, path, **options):
        return house.judge(house.main, effect, path, overlay=Overlay(**options))

    assert judge("write", home / "other/x", allow_write=["../other"]) == ALLOW
    assert judge("write", home / "other/.git/hooks/x", allow_write=["../other"]) == CONFIRM
    assert judge("write", house.main / ".git/hooks/pre-commit", allow_write=["."]) == CONFIRM
    assert judge("write", house.main / ".git/hooks/pre-commit", allow_write=[".git/hooks"]) == ALLOW
    assert judge("write", home / ".config/nvim/init.lua", allow_write=["../.config/nvim"]) == ALLOW
    assert judge("write", home / ".config/nvim/.git/hooks/x", allow_write=["../.config/nvim"]) == CONFIRM
    assert judge("write", house.main / "x/y", protect=["x"], allow_write=["x"]) == DENY
    assert judge("read", house.main / "x", protect=["x"]) == DENY
    assert judge("write", house.main / "[a]*", protect=["[a]*"]) == DENY
    assert judge("write", house.main / "ab", protect=["[a]*"]) == ALLOW


def test_below_never_misses_and_can_be_empty(house, tmp_path):
    profile = load("default", house.places(house.main))
    sources = {rule.source for rule in profile.below("rename", os.fsencode(house.main / "src"))}
    assert any("default.toml" in source for source in sources)
    assert any(rule.source == "built in" for rule in profile.below("rename", b"/"))
    assert [rule.reason for rule in profile.below("exec", b"/usr")] == []
    assert profile.below("read", os.fsencode(house.home))
    file = tmp_path / "p.toml"
    file.write_text('[[rule]]\neffects=["read"]\npaths=["/a/*"]\nverdict="allow"\nreason="r"\n')
    (rule,) = load(str(file), house.places(house.main)).below("read", b"/a")
    assert rule.verdict == DENY  # what lies deeper than one level is allowed by no rule


@pytest.mark.parametrize(
    ("effect", "path"),
    [
        ("write", "/opt/a b/x"),
        ("write", "{main}/.git/hooks/pre-commit"),
        ("create", "{home}/.bashrc"),
        ("chmod", "/tmp/it's"),
        ("read", "{home}/.ssh/id_rsa"),
        ("read", "/dev/sda"),
        ("read", '{main}/".env\\*\n/.env'),
    ],
)
def test_the_remedy_that_is_named_works(house, tmp_path, effect, path):
    import shlex

    path = os.fsencode(path.replace("{main}", str(house.main)).replace("{home}", str(house.home)))
    places = house.places(house.main)
    told = load("default", places).explain(effect, path, Facts())
    assert told.verdict != ALLOW
    if told.remedy.startswith("--allow-write "):
        fixed = load("default", places, overlay=Overlay(allow_write=shlex.split(told.remedy)[1:]))
    else:
        file = tmp_path / "mine.toml"
        file.write_text('extends = "default"\n' + told.remedy)
        fixed = load(str(file), places)
    assert fixed.judge(effect, path, Facts()).verdict == ALLOW
    assert (
        fixed.judge(effect, path + b"-other", Facts()).verdict
        == load("default", places).judge(effect, path + b"-other", Facts()).verdict
    )
    assert fixed.explain(effect, path, Facts()).remedy == ""
