"""Commands in an internet of their own: `internet.py` around a runner's."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import support

INTERNET = str(Path(__file__).with_name("internet.py"))


class _Away(support.Identity):
    """An identity whose commands run there."""

    def __init__(self, identity: support.Identity, words: list[str]) -> None:
        super().__init__(identity.name, identity.uid, identity.gid, identity.python)
        self._around = [*words, *identity.switch]

    @property
    def switch(self) -> list[str]:
        return self._around


class Internet:
    """Names, servers, and a note of what they saw. Public addresses are another machine's, but for those in `here`."""

    def __init__(
        self,
        runner: support.Runner,
        zone: dict[str, Any],
        listen: list[tuple[str, int]],
        here: tuple[str, ...] = (),
        there: tuple[str, ...] = (),
        hosts: str = "",
        files: tuple[Path, Path] = (Path(), Path()),
        resolver: str = "nameserver 127.0.0.1\nsearch search.test\noptions ndots:3\n",
    ) -> None:
        if os.geteuid() != 0:
            pytest.skip("a network namespace of its own needs root")
        if shutil.which("ip") is None:
            pytest.skip("ip is missing (Debian package iproute2)")
        self._runner = runner
        self.log = runner.base / "internet.log"
        world = {"zone": zone, "listen": listen, "here": here, "there": there, "hosts": hosts, "resolver": resolver,
                 "files": str(files[0]), "certificate": str(files[1]), "log": str(self.log)}  # fmt: skip
        words = ["unshare", "-n", "-m", "--", sys.executable, "-I", INTERNET, json.dumps(world), "--"]
        self._away = _Away(runner.identity, words)

    def supervise(self, command: list[str], **how: Any) -> support.Result:
        """As the runner's own."""
        there = support.Runner(self._runner.base, self._away)
        there.count = self._runner.count
        result = there.supervise(command, **how)
        self._runner.count = there.count
        assert result._log is not None
        result._log.identity = self._runner.identity
        return result

    def saw(self, word: str) -> set[str]:
        """What was `asked`, who was `connected`, where `proxied` led, each once."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return {rest for line in lines for first, _, rest in [line.partition(" ")] if first == word}
