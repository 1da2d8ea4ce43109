"""Build hook of the wheel: compiles the fast path where there is a C compiler; otherwise the wheel is Python alone."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """See hatch's documentation of custom build hooks."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this machine's architecture."""
        del version
        try:
            subprocess.run([Path(self.root) / "scripts" / "compile"], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"the fast path was not compiled, reads will be slower: {error}")
            return
        build_data["artifacts"].append("pincer_trace/kernel/_fastpath.so")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
