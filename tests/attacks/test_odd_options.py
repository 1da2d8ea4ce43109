"""An allowed program with an odd option reads the secret: a list after GTFOBins' file-read, all in one run.

Each is tried natively first, where it must show the canary; supervised, no byte of it may reach an output, a file, or
the log, and the log must say who asked for it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import support
from attacks.kit import between_marks
from attacks.odd_options import cases
from hazards.path_programs.tools import folder, forms, give

CANARY = b"Canary7f3aQzXw"
SECRET = b"[%b]\n%b = %b\n" % (CANARY, CANARY, CANARY)
FORMS = forms(CANARY)


def shown(top: Path) -> list[str]:
    """The files below `top` that hold the canary."""
    found = []
    for parent, _, names in os.walk(top):
        for path in (Path(parent, name) for name in names):
            if path.is_file() and not path.is_symlink() and any(form in path.read_bytes() for form in FORMS):
                found.append(str(path.relative_to(top)))
    return found


def run_all(runner: support.Runner, commands: dict[str, str], supervised: bool) -> tuple[set[str], support.Result]:
    """Each command in a folder of its own, its outputs beside it: those whose folder then holds the canary."""
    secret = give(runner, runner.home / ".aws" / "credentials", SECRET, 0o600)
    marks = folder(runner, runner.home / ".aws" / "sso")
    lines = []
    for number, command in enumerate(commands.values()):
        place = folder(runner, runner.work / str(number))
        script = give(runner, runner.base / "outside" / str(number), command.encode() + b"\n")
        lines.append(f"mkdir {marks}/{number} 2>/dev/null && rmdir {marks}/{number}")
        lines.append(f"cd {place} && timeout -k 1 20 sh {script} > output 2>&1 < /dev/null")
    lines.append(f"mkdir {marks}/end 2>/dev/null && rmdir {marks}/end; true")
    run = runner.supervise if supervised else runner.native
    names = {f"GIT_{who}_{what}": "x@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    result = run(["sh", "-c", "\n".join(lines)], env={"S": str(secret), **names}, timeout=250)
    assert result.status == 0, result
    assert secret.read_bytes() == SECRET and {path.name for path in secret.parent.iterdir()} == {"credentials", "sso"}
    leaks = {name for number, name in enumerate(commands) if shown(runner.work / str(number))}
    return leaks, result


def installed(name: str) -> bool:
    program = name.split()[0]
    return program == "python" or shutil.which(program, path=support.SYSTEM_PATH) is not None


def check(runner: support.Runner, chosen: dict[str, str]) -> None:
    leaks, _ = run_all(runner, chosen, supervised=False)
    assert leaks == set(chosen), f"these show nothing natively, so they prove nothing: {sorted(set(chosen) - leaks)}"
    runner.fresh()
    leaks, result = run_all(runner, chosen, supervised=True)
    assert not leaks
    assert not any(form in result.stdout + result.stderr for form in FORMS)
    assert not shown(result.session)
    logged = between_marks(result.decisions, runner.home / ".aws/sso")
    for number, name in enumerate(chosen):
        refused = [record["path"] for record in logged[str(number)] if record["verdict"] != "allow"]
        assert any(".aws" in path for path in refused), f"no record of {name}"


def test_p63_no_option_of_an_allowed_program_reads_the_secret(runner: support.Runner) -> None:
    """One way of each program that is installed."""
    chosen: dict[str, str] = {}
    for name, command in cases().items():
        if installed(name) and name.split()[0] not in {other.split()[0] for other in chosen}:
            chosen[name] = command
    assert len(chosen) >= 30
    check(runner, chosen)
    print("not installed:", *sorted({name.split()[0] for name in cases() if not installed(name)}))


@pytest.mark.slow
def test_p63_no_option_at_all_reads_the_secret(runner: support.Runner) -> None:
    check(runner, {name: command for name, command in cases().items() if installed(name)})
