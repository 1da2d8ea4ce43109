"""The default profile: what an agent can do in each kind of folder, and what stays closed (P52, P66, P86)."""

from __future__ import annotations

import os
import subprocess

import pytest

from pincer_trace import effects
from pincer_trace.plaintext.kinds import Kind
from pincer_trace.profile import ALLOW, CONFIRM, DENY, VIEW, Facts, Overlay, Places, gitconfig, load, places
from pincer_trace.profile.chosen import profile_for

TIMES = frozenset({"utime"})
ATTRIBUTES = frozenset({"chmod", "chown", "utime"})


class Known(Facts):
    """Facts as the engine has them: what the tree created, what a new git configuration changes."""

    def __init__(self, created=(), keys=None, exe=b"", danger=None):
        self.danger = danger
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

    def git_danger(self):
        """As `gateway.repositories` has it for a folder with a HEAD: but for `.git`, whose content is the test's."""
        if self.danger is not None:
            return self.danger
        directory, name = os.path.split(self.path)
        if name in {b"config", b"config.worktree"}:
            if self.keys is None:
                return "unknown"
            return "; ".join(f"{key}: {what}" for key in sorted(self.keys) if (what := gitconfig.danger(key)))
        return "a hook" if directory.endswith(b"/hooks") and not name.endswith(b".sample") else ""

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
            self.profiles[key] = load(profile_for(places.command), places, overlay=overlay, cache_directory=self.cache)
        return self.profiles[key]

    def judge(self, cwd, effect, path, facts=None, command=None, overlay=None):
        facts = facts or Known()
        facts.path = self.moved(path)
        facts.created = {self.moved(place) for place in facts.created}
        facts.exe = self.moved(facts.exe)
        return self.profile(cwd, command, overlay).judge(effect, facts.path, facts).verdict


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """Whoever runs the tests has this home, also by the account data: a user without an account would have `/`."""
    made = House(tmp_path_factory.mktemp("house"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "_account_home", lambda: os.fsencode(made.home))
        yield made


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
    harmless = {".claude/settings.json": ATTRIBUTES, ".codex/config.toml": TIMES}.get(path, frozenset())
    for cwd in (house.home, house.main):  # in the home itself, the work tree's own rule would allow
        for effect in effects.CHANGES - harmless:
            assert house.judge(cwd, effect, house.home / path) in {CONFIRM, DENY}, effect


@pytest.mark.parametrize(
    ("path", "harmless"),
    [
        (".git/hooks/pre-commit", TIMES),
        (".git/modules/a/hooks/x", TIMES),
        ("sub/.git/hooks/post-checkout", TIMES),
        ("bare.git/hooks/update", TIMES),
        (".git/hooks", ATTRIBUTES),
        (".git/config", ATTRIBUTES),
        (".git/config.worktree", ATTRIBUTES),
        (".git/modules/a/b/config", ATTRIBUTES),
        (".git", {"chmod", "utime", "create", "mkdir", "symlink"}),  # there is one, so nothing can be created
        ("module/.git", {"chmod", "utime", "mkdir"}),
        (".husky/pre-commit", TIMES),
        (".husky/_/h", TIMES),
        ("packages/a/.githooks/pre-push", TIMES),
        (".vscode/tasks.json", ATTRIBUTES),
        (".idea/workspace.xml", ATTRIBUTES),
        (".devcontainer/devcontainer.json", ATTRIBUTES),
        (".devcontainer/post-create.sh", TIMES),
        ("x.code-workspace", ATTRIBUTES),
        (".exrc", ATTRIBUTES - {"chown"}),
        (".vimrc", ATTRIBUTES - {"chown"}),
        ("src/.gvimrc", ATTRIBUTES - {"chown"}),
        (".nvimrc", ATTRIBUTES - {"chown"}),
        (".dir-locals-2.el", ATTRIBUTES - {"chown"}),
        (".helix/config.toml", ATTRIBUTES),
        (".ropeproject/config.py", frozenset()),
        (".envrc", ATTRIBUTES),
        (".autoenv", ATTRIBUTES),
        ("deep/.autoenv.zsh", ATTRIBUTES),
        ("mise.dev.toml", ATTRIBUTES),
        (".config/mise/conf.d/a.toml", frozenset()),
        (".mcp.json", ATTRIBUTES),
        (".claude/settings.local.json", ATTRIBUTES),
        (".claude/hooks/x.sh", TIMES),
        (".claude/commands/deploy.md", TIMES),
        (".claude/agents/a.md", TIMES),
        (".claude/skills/a/SKILL.md", TIMES),
        (".codex/rules/default.rules", TIMES),
        (".opencode/agent/a.md", TIMES),
        (".github/hooks/a.json", TIMES),
        (".kiro/hooks/a.kiro.hook", TIMES),
        (".windsurf/hooks.json", frozenset()),
    ],
)
def test_every_verb_is_asked_about_on_what_runs_by_itself(house, path, harmless):
    facts = Known(
        created=[
            house.main / "unrelated",
            house.main / ".git/hooks",
            house.main / ".vscode",
            house.main / ".claude",
        ],
        danger="it makes git run something",
    )
    for effect in effects.CHANGES - harmless:
        assert house.judge(house.main, effect, house.main / path, facts) == CONFIRM, effect
    for effect in harmless & ATTRIBUTES:
        assert house.judge(house.main, effect, house.main / path) == ALLOW, effect
        assert house.judge(house.main, effect, house.home / "other" / path) == DENY, effect
    facts = Known(created=[house.main / "new"])  # a folder that nobody has opened yet
    if not {".git", "bare.git", "hooks"} & set(path.split("/")):  # those are judged by what git would make of them
        assert house.judge(house.main, "write", house.main / "new" / path, facts) == ALLOW


@pytest.mark.parametrize(
    ("option", "path"),
    [
        (".husky", ".husky/_/h"),
        (".claude/commands", ".claude/commands/a/b.md"),
        (".claude/skills/x", ".claude/skills/x/SKILL.md"),
        ("../.claude/plugins/marketplaces/m", "../.claude/plugins/marketplaces/m/README.md"),
        ("../.cache/nvim", "../.cache/nvim/luac/x"),
        (".vimrc", ".vimrc"),
    ],
)
def test_what_is_closed_can_be_opened_by_its_folder(house, option, path):
    target = os.path.normpath(house.main / path)
    assert house.judge(house.main, "create", target) != ALLOW
    assert house.judge(house.main, "create", target, overlay=Overlay(allow_write=[option])) == ALLOW
    assert house.judge(house.main, "create", house.main / ".vscode/tasks.json", overlay=Overlay([option])) == CONFIRM


@pytest.mark.parametrize(
    "path",
    [
        "CLAUDE.md",
        "AGENTS.md",
        ".cursor/rules/a.mdc",
        ".github/copilot-instructions.md",
        ".github/workflows/ci.yml",
        ".cargo/config.toml",
        "Makefile",
        "package.json",
        ".pre-commit-config.yaml",
        "eslint.config.js",
        ".git/rebase-merge/git-rebase-todo",
        ".git/sequencer/todo",
        ".husky",
        ".claude/commands",
    ],
)
def test_project_files_are_the_agents_work(house, path):
    """Instructions, builds, checks, a rebase under way: docs/threats.md says what they can bring about."""
    for effect in ("mkdir",) if path in {".husky", ".claude/commands"} else effects.CHANGES:
        assert house.judge(house.main, effect, house.main / path) == ALLOW, effect


@pytest.mark.parametrize(
    "path",
    [
        "p10k-instant-prompt-me.zsh",
        "p10k-me/prompt.zsh",
        "gitstatus/gitstatusd-linux-x86_64",
        "nvim/luac/x.luac",
        "zsh/zcompdump",
        "zcompdump-host-5.9",
        "oh-my-zsh/completions/_x",
        "zinit/x",
        "antigen/init.zsh",
        "starship/init.zsh",
        "oh-my-posh/init.1.zsh",
        "wal/colors.sh",
        "fish/generated_completions/ls.fish",
        "emacs/eln-cache/x.eln",
    ],
)
def test_a_cache_that_a_shell_or_an_editor_runs_is_closed(house, path):
    for cwd in (house.home, house.main):
        for effect in effects.CHANGES:
            assert house.judge(cwd, effect, house.home / ".cache" / path) == CONFIRM, effect
    for other in ("pip/http/x", "go-build/x", "zig/o/x", "bazel/x"):
        assert house.judge(house.main, "write", house.home / ".cache" / other) == ALLOW


@pytest.mark.parametrize(
    "path", [".p10k.zsh", ".zcompdump-host", ".fzf.bash", ".zinit/bin/zinit.zsh", ".local/share/nvim/site/plugin/a.lua"]
)
def test_in_a_home_that_is_the_work_tree_shells_and_editors_keep_what_they_run(house, path):
    for effect in effects.CHANGES:
        assert house.judge(house.home, effect, house.home / path) == CONFIRM, effect


def test_a_fresh_home_gets_the_directories_above_the_caches(house):
    """An empty directory; whatever would lie in it is judged by itself."""
    for path in (".local", ".local/share", ".local/state", ".cargo", "go", "go/pkg", ".gradle", ".local/share/uv"):
        for effect in effects.CHANGES:
            expected = ALLOW if effect == "mkdir" else DENY
            assert house.judge(house.main, effect, house.home / path) == expected, (effect, path)
        assert house.judge(house.main, "create", house.home / path / "x") != ALLOW
    assert house.judge(house.main, "mkdir", house.home / ".local/share/applications") == CONFIRM
    assert house.judge(house.main, "mkdir", house.home / ".local/bin") == CONFIRM
    assert house.judge(house.main, "mkdir", house.home / ".config") == DENY


@pytest.mark.parametrize("home", ["/root", "/home/somebody"])
@pytest.mark.parametrize(
    "path",
    [
        ".ssh/id_ed25519",
        ".ssh/deploy",
        ".config/gcloud/x/y",
        ".azure/x",
        ".pgpass",
        ".vault-token",
        ".gem/credentials",
        ".gnupg/private-keys-v1.d/a.key",
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
    "path",
    [
        ".aws/credentials",
        ".oci/config",
        ".kube/config",
        ".docker/config.json",
        ".my.cnf",
        ".netrc",
        ".git-credentials",
        ".config/git/credentials",
        ".config/gh/hosts.yml",
        ".config/gcloud/application_default_credentials.json",
        ".config/rclone/rclone.conf",
        ".terraform.d/credentials.tfrc.json",
        ".cargo/credentials.toml",
        ".npmrc",
        ".yarnrc.yml",
        ".pypirc",
    ],
)
def test_credentials_of_any_home_are_views_but_for_git_and_nothing_changes_them(house, path):
    for name in (f"/root/{path}", f"/home/somebody/{path}", house.home / path):
        assert house.judge(house.main, "read", name, Known(exe=b"/usr/bin/cat")) == VIEW
        for git in (b"/usr/bin/git", b"/usr/lib/git-core/git-remote-http"):
            assert house.judge(house.main, "read", name, Known(exe=git)) == DENY
        for effect in ("link", "rename", "write", "truncate", "create"):
            assert house.judge(house.main, effect, name) in {CONFIRM, DENY}, effect
    assert Kind.of(os.fsencode(f"/root/{path}"), b"").format.name != "unknown"


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
    assert house.judge(cwd, "mkdir", new / "hooks", facts) == ALLOW
    for path in ("hooks/pre-commit", "modules/a/hooks/x"):  # git opens a folder that an index names, whoever made it
        for effect in ("create", "write", "rename", "link", "symlink"):
            assert house.judge(cwd, effect, new / path, facts) == CONFIRM
        for effect in ("unlink", "chmod", "chown", "utime"):
            assert house.judge(cwd, effect, new / path, facts) == ALLOW
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

    def judge(effect, path, keys=None):
        facts = Known(keys=keys if keys is None else frozenset(keys))
        facts.path = path
        return profile.judge(effect, path, facts)

    for path in (".git/config", ".git/worktrees/linked/config.worktree", ".git/modules/a/b/config"):
        target = house.moved(house.main / path)
        for effect in ("rename", "write", "create"):
            assert judge(effect, target, {"remote.origin.url", "branch.x.merge"}).verdict == ALLOW
            decision = judge(effect, target, {"user.name", "core.fsmonitor"})
            assert (decision.verdict, "core.fsmonitor: git runs what" in decision.reason) == (CONFIRM, True)
            decision = judge(effect, target, {"http.proxy"})
            assert (decision.verdict, "http.proxy: it sends the user's traffic" in decision.reason) == (CONFIRM, True)
            assert judge(effect, target).verdict == CONFIRM
        assert judge("symlink", target, set()).verdict == CONFIRM


def test_what_git_reads_is_judged_in_whatever_folder(house, cwd):
    """Also in one that this session made, and under every name."""
    facts = {"created": [cwd / "new", cwd / "new/repo", cwd / "new/.git"]}
    for path in ("new/.git", "new/repo/HEAD", "new/repo/config", "new/repo/hooks/pre-push", "new/.git/commondir"):
        for effect in ("create", "write", "truncate", "rename", "link", "symlink"):
            assert house.judge(cwd, effect, cwd / path, Known(**facts, danger="it runs")) == CONFIRM, (effect, path)
        assert house.judge(cwd, "unlink", cwd / path, Known(**facts, danger="it runs")) == ALLOW
    for path in ("new/.git", "new/repo/HEAD", "new/repo/config", "new/repo/hooks/pre-push", "new/.git/commondir"):
        for effect in ("create", "rename"):
            assert house.judge(cwd, effect, cwd / path, Known(**facts, danger="")) == ALLOW, (effect, path)
    assert house.judge(cwd, "create", cwd / "src/hooks/x.ts", Known(danger="")) == ALLOW
    assert house.judge(cwd, "create", cwd / ".anything/post-index-change", Known(danger="it runs")) == CONFIRM
    assert house.judge(cwd, "create", cwd / "new/.git/hooks/pre-push", Known(**facts, danger="")) == ALLOW


@pytest.mark.parametrize("directory", ["/tmp", "/var/tmp"])
def test_a_repository_of_the_tree_in_a_temporary_directory_has_hooks(house, cwd, directory):
    """Those that only a commit or a push made there runs."""
    facts = {"created": [f"{directory}/d", f"{directory}/d/.git"], "danger": "a hook"}
    assert house.judge(cwd, "create", f"{directory}/d/.git/hooks/pre-commit", Known(**facts)) == ALLOW
    for name in ("post-receive", "update", "post-checkout", "post-index-change"):  # a push into it, or a submodule
        assert house.judge(cwd, "create", f"{directory}/d/.git/hooks/{name}", Known(**facts)) == CONFIRM
    for effect in ("create", "rename"):  # where somebody else's was
        assert house.judge(cwd, effect, f"{directory}/e/.git/hooks/pre-commit", Known(danger="a hook")) == CONFIRM


def test_environment_files_are_read_as_views(house, cwd):
    for name in ("a/.env", ".env.local", ".env~", "b/.env.local~"):
        assert house.judge(cwd, "read", cwd / name, Known(exe=b"/usr/bin/cat")) == VIEW
    for name in (".env.example", "a/.env.local.sample"):
        assert house.judge(cwd, "read", cwd / name) == ALLOW
    other = cwd.parent / "another-project"
    assert house.judge(cwd, "read", other / "a/.env", Known(exe=b"/usr/bin/cat")) == VIEW
    assert house.judge(cwd, "read", other / "a/.env", Known(exe=b"/usr/bin/git")) == DENY
    assert house.judge(cwd, "read", other / ".env.example") == ALLOW
    assert house.judge(cwd, "read", other / ".env", Known(created=[other / ".env"])) == ALLOW
    for exe in (b"/usr/bin/git", b"/usr/lib/git-core/git-remote-http"):
        assert house.judge(cwd, "read", cwd / ".env", Known(exe=exe)) == DENY
        assert house.judge(cwd, "read", cwd / ".env.example", Known(exe=exe)) == ALLOW
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


def test_the_network_is_asked_about_but_for_the_agents_own_model(house):
    claude = house.home / "node_modules/@anthropic-ai/claude-code/bin/claude.exe"
    itself, other = Known(exe=os.fsencode(claude)), Known(exe=b"/usr/bin/curl")
    for peer in ("//api.anthropic.com:443", "//claude.ai:443", "//platform.claude.com:443"):
        assert house.judge(house.main, "connect", peer, itself, command=str(claude)) == ALLOW
        assert house.judge(house.main, "connect", peer, other, command=str(claude)) == CONFIRM
        assert house.judge(house.main, "connect", peer, itself, command="/usr/bin/env") == CONFIRM
    for peer in (
        "//api.anthropic.com:80", "//x.api.anthropic.com:443", "//api.openai.com:443", "//registry.npmjs.org:443",
        "//github.com:443", "//127.0.0.1:443", "//::1:443", "//10.0.0.1:443", "//169.254.169.254:80",
    ):  # fmt: skip
        assert house.judge(house.main, "connect", peer, itself, command=str(claude)) == CONFIRM, peer


def test_only_this_machine_has_servers_of_the_run(house):
    """Whatever the facts: what listens here by any address would seem to listen at another machine's too."""

    class Bound(Known):
        def bound_by_tree(self):
            return True

    for peer, verdict in {
        "//127.0.0.1:80": ALLOW, "//127.9.9.9:80": ALLOW, "//::1:80": ALLOW, "//10.0.0.1:80": CONFIRM,
        "//127.evil.com:80": CONFIRM, "//127.0.0.evil.com:80": CONFIRM, "//localhost.evil.com:80": CONFIRM,
    }.items():  # fmt: skip
        assert house.judge(house.main, "connect", peer, Bound()) == verdict, peer


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


def test_a_git_file_in_a_folder_that_was_there_is_judged_by_where_it_leads(house):
    """`git submodule update --init` writes one into the empty folder that waits for it."""
    path = house.main / "module/.git"
    for effect in ("create", "write", "truncate"):
        assert house.judge(house.main, effect, path, Known(danger="")) == ALLOW
        assert house.judge(house.main, effect, path, Known(danger="it leads to another")) == CONFIRM
        assert house.judge(house.main, effect, house.home / "other/.git", Known(danger="")) != ALLOW
    for effect in ("rename", "symlink", "link", "unlink"):
        assert house.judge(house.main, effect, path, Known(danger="")) == CONFIRM
