"""The profiles that ship beside the default one: what each is for holds, in a supervised run where that matters."""

from __future__ import annotations

import json
import os
import tomllib

import pytest
import support

from pincer_trace.paths import shipped_profiles
from pincer_trace.profile import ALLOW, CONFIRM, DENY, Facts, Places, globs, load
from pincer_trace.profile.chosen import AGENTS, profile_for
from pincer_trace.profile.model import EveryFact
from pincer_trace.profile.show import available, doubts

SHIPPED = sorted(name.removesuffix(".toml") for name in os.listdir(shipped_profiles()))
needs_us = pytest.mark.skipif(bool(support.PREFIX), reason="nothing is refused natively")


@pytest.mark.parametrize("name", SHIPPED)
def test_each_loads_says_what_it_is_for_in_a_line_and_lets_something_start(places, name):
    profile = load(name, places)
    assert doubts(profile) == []
    ((_, description, _),) = [row for row in available(places) if row[0] == name]
    assert 20 < len(description) < 110
    assert description == profile.description
    own = os.path.join(places.state, b"sessions/x")
    assert profile.judge("create", own, EveryFact()).verdict == DENY


@needs_us
def test_strict_is_the_work_tree_alone(runner: support.Runner) -> None:
    """Git, a compiler and temporary files work; the home, other folders, caches and the network are closed."""
    import socket

    program = r"""
    git init -q . && echo 1 > a && git add a && git -c user.name=a -c user.email=a@x commit -qm a
    printf 'int main(void){return 0;}' > a.c && gcc -o a.out a.c && ./a.out
    file=$(mktemp) && echo x > $file && cat $file && rm $file
    ! cat ~/notes && ! ls ~/folder && ! mkdir -p ~/.cache/x && ! echo > ~/.npmrc && ! cat /var/log/dpkg.log
    ! exec 9<> /dev/tcp/127.0.0.1/$PORT
    """
    (runner.home / "notes").write_text("mine\n")
    (runner.home / "folder").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = {"PORT": str(server.getsockname()[1]), "TMPDIR": "/var/tmp"}
        done = runner.supervise(["bash", "-euc", program], options=("-p", "strict", "-q"), env=env)
    assert (done.status, done.out) == (0, "x\n"), done
    refused = {(entry["effect"], entry["path"]) for entry in done.denied()}
    assert refused >= {
        ("read", f"{runner.home}/notes"), ("read", f"{runner.home}/folder"), ("mkdir", f"{runner.home}/.cache"),
        ("create", f"{runner.home}/.npmrc"), ("connect", f"//127.0.0.1:{env['PORT']}"),
    }  # fmt: skip


@needs_us
def test_observe_refuses_nothing_but_our_own_and_records_what_it_would_have(runner: support.Runner) -> None:
    """Said in capital letters, also with --quiet; and what is learned of such a run takes none of that over."""
    program = r"""
    echo x >> ~/.bashrc; cat ~/.ssh/id_rsa; echo a > ~/other/file; chmod 600 ~/other; mkdir .husky; echo h > .husky/hook
    ! touch "$(dirname "$PINCER_DENIALS")/mine"
    """
    (runner.home / ".ssh").mkdir()
    (runner.home / ".ssh/id_rsa").write_text("a key\n")
    (runner.home / "other").mkdir()
    for path in (runner.home / ".ssh", runner.home / ".ssh/id_rsa", runner.home / "other"):
        os.chown(path, runner.identity.uid, runner.identity.gid)
    done = runner.supervise(["sh", "-euc", program], options=("-p", "observe", "-q"))
    assert (done.status, done.out) == (0, "a key\n"), done
    assert "NOTHING IS REFUSED IN THIS RUN BUT WHAT PROTECTS PINCER-TRACE ITSELF" in done.err
    would = {entry["path"]: entry for entry in done.decisions if entry["verdict"] == "confirm"}
    for path in ("home/.bashrc", "home/.ssh/id_rsa", "home/other", "work/.husky/hook"):
        entry = would[str(runner.base / path)]
        assert (entry["outcome"], entry["extra"]["confirmed"]) == ("done", "auto"), entry
        assert entry["rule"].startswith("default.toml:") or entry["reason"] == "no rule allows it"
    (denied,) = [entry for entry in done.decisions if entry["kind"] == "denied"]
    assert denied["rule"] == "built in"

    learned = runner.subcommand("profile", "learn", done.session)
    assert learned.returncode == 0, learned.stderr
    head, _, rules = learned.stdout.partition("# What the runs did")
    for name in (".bashrc", "id_rsa", '"{home}/other"', ".husky/hook"):
        assert name in head
        assert name not in rules
    assert 'protections = "default"' in head

    asked = runner.supervise(["true"], options=("-p", "observe", "--confirm", "ask"))
    assert asked.status == 125
    assert "--confirm ask: the profile observe refuses nothing; nothing was started" in asked.err


def test_observe_asks_each_fact_that_the_default_profile_asks(places):
    """Or nothing could be told of its records afterwards."""
    default, observe = load("default", places), load("observe", places)
    assert (observe.settings.mode, observe.settings.udp) == ("observe", "unpoliced")
    for effect, path in (("write", b"/etc/crontab"), ("create", b"/srv/x"), ("read", b"/root/.ssh/id_x"),
                         ("rename", places.workspace + b"/x/.vscode/tasks.json"), ("connect", b"//192.0.2.1:80"),
                         ("unlink", places.tmp + b"/x")):  # fmt: skip
        for facts in (Facts(), EveryFact()):
            verdict, now = default.judge(effect, path, facts), observe.judge(effect, path, facts)
            assert now.verdict == (ALLOW if verdict.verdict == ALLOW else CONFIRM)
            assert (now.rule is None) == (verdict.rule is None)
        settled = observe.settled(effect, path)
        assert (settled is None) == (default.settled(effect, path) is None)


def test_ci_closes_what_later_steps_and_other_jobs_run():
    jobs = b"/home/runner/work"
    project = jobs + b"/p/p"
    places = Places(
        cwd=project, workspace=project, home=b"/home/runner", tmp=b"/tmp",
        state=b"/home/runner/.local/state/pincer-trace",
    )  # fmt: skip
    ci, default = load("ci", places), load("default", places)
    closed = [
        (jobs + b"/_temp/_runner_file_commands/set_env_1", "write"),
        (project + b"/.github/workflows/ci.yml", "rename"),
        (project + b"/.gitlab-ci.yml", "create"),
        (b"/home/runner/actions-runner/.credentials", "read"),
        (jobs + b"/_actions/actions/checkout/v4/dist/index.js", "write"),
    ]
    for path, effect in closed:
        assert ci.judge(effect, path, EveryFact()).verdict == DENY, path
    assert default.judge("create", project + b"/.gitlab-ci.yml", Facts()).verdict == ALLOW
    assert ci.judge("create", project + b"/src/a", Facts()).verdict == ALLOW
    assert ci.judge("read", project + b"/.github/workflows/ci.yml", Facts()).verdict == ALLOW


@pytest.mark.parametrize("name", AGENTS)
def test_the_profile_of_an_agent_is_taken_for_the_programs_that_it_is_about(places, name):
    """The patterns by which it is chosen are those that its own rules name; and no more than its program is."""
    with open(os.path.join(shipped_profiles(), f"{name}.toml"), "rb") as file:
        tree = tomllib.load(file)
    assert tree["extends"] == "default"
    tables = [table for kind in ("rule", "pass_env", "broker") for table in tree.get(kind, ())]
    labels = {tuple(table["command"]) for table in tables if "command" in table}
    written = {pattern for label in labels for each in label for pattern in globs.alternatives(each.encode())}
    assert written == set(AGENTS[name])
    for pattern in AGENTS[name]:
        assert profile_for(pattern.replace(b"**/", b"/opt/x/").replace(b"/**", b"/bin/y").replace(b"*", b"z")) == name
    for other in (b"", b"/usr/bin/env", f"/usr/bin/{name}-not".encode(), f"/opt/{name}/bin/sh".encode()):
        assert profile_for(other) == "default"


@pytest.mark.parametrize(
    ("name", "own", "closed"),
    [
        (
            "opencode",
            [".local/share/opencode/opencode.db", ".local/share/opencode/auth.json", ".config/opencode/.gitignore"],
            [".config/opencode/config.json", ".config/opencode/node_modules/p/i.js", ".local/share/opencode/bin/gopls"],
        ),
        (
            "gemini",
            [".gemini/projects.json", ".gemini/oauth_creds.json", ".gemini/tmp/project/chats/session.jsonl"],
            [".gemini/trustedFolders.json", ".gemini/.env", ".gemini/commands/a.toml", ".gemini/settings.json"],
        ),
    ],
)
def test_an_agent_keeps_its_state_and_asks_where_that_would_run_or_be_believed(name, own, closed):
    """And another program's run has neither."""
    home = {"cwd": b"/srv/p", "workspace": b"/srv/p", "home": b"/home/u", "tmp": b"/tmp", "state": b"/home/u/.state"}
    judged = load(name, Places(**home, command=AGENTS[name][0].replace(b"**", b"/opt")))
    other = load(name, Places(**home, command=b"/usr/bin/make"))
    for path in own:
        assert judged.judge("write", b"/home/u/" + path.encode(), Facts()).verdict == ALLOW, path
        assert other.judge("write", b"/home/u/" + path.encode(), Facts()).verdict != ALLOW, path
    for path in closed:
        assert judged.judge("write", b"/home/u/" + path.encode(), Facts()).verdict == CONFIRM, path


@needs_us
def test_an_agent_gets_its_profile_by_its_name_and_p_names_another(runner: support.Runner) -> None:
    folder = runner.base / "bin"
    folder.mkdir(mode=0o755)
    agent = folder / "claude"
    agent.write_text("#!/bin/sh\nmkdir -p ~/.claude && echo 1 > ~/.claude/state\n")
    agent.chmod(0o755)
    done = runner.supervise([str(agent)], options=())
    assert done.status == 0, done
    first = done.err.splitlines()[0]
    assert first == "pincer-trace: profile claude, by the name of the program; -p NAME takes another one"
    session = json.loads((done.session / "session.json").read_text())
    assert (session["profile"], session["judged_by"]["profile"]) == ("claude", "claude")
    runner.fresh()
    done = runner.supervise([str(agent)], options=("-p", "strict"))
    assert done.status == 0, done
    assert "by the name of the program" not in done.err
    assert json.loads((done.session / "session.json").read_text())["profile"] == "strict"
