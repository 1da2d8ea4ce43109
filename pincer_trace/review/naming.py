"""Paths of a run by the places that profiles name: `{workspace}/a.py`, `{home}/.npmrc`, and back again.

Two runs of the same thing, by two people on two machines, then have the same names.
"""

from __future__ import annotations

import os

from pincer_trace.profile import globs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pincer_trace.ledger.read import Record
    from pincer_trace.profile.globs import Components

_ROOTS = (("workspace", "workspace"), ("git_common", "git_common_dir"), ("tmp", "tmp"), ("home", "home"))
_BASES = ("cache", "config", "data")  # of XDG: named where they do not lie below the home


class Names:
    """The places of one run, as text. `more` are further ones, by the name that they get."""

    __slots__ = ("_cwd", "_roots", "home")

    def __init__(self, session: Record, more: Mapping[str, str] | None = None) -> None:
        """Of a session's facts (`ledger.read.load_session`); one that tells no places has a work tree at most."""
        judged_by = session.get("judged_by")
        told = judged_by.get("places") if isinstance(judged_by, dict) else None
        places = told if isinstance(told, dict) else {"workspace": session.get("workspace")}
        named = {name: _path(places.get(key)) for name, key in _ROOTS}
        self.home = named["home"]
        self._cwd = _path(places.get("cwd")) or named["workspace"]
        for name in _BASES:
            path = _path(places.get(name))
            if path and not _below(path, self.home):
                named[name] = path
        homes = places.get("homes")
        for path in homes if isinstance(homes, list) else ():
            if _path(path) not in ("", self.home):
                named["homes"] = _path(path)
        named |= {name: _path(os.path.realpath(path)) for name, path in (more or {}).items()}
        roots = [(path, "{" + name + "}") for name, path in named.items() if path]
        self._roots = sorted(roots, key=lambda root: -len(root[0]))  # a stable sort: of two names the first counts

    def short(self, path: str) -> str:
        """The path by the innermost place that holds it."""
        for root, name in self._roots:
            if _below(path, root):
                return name + path[len(root) :]
        return path

    def pattern(self, text: str) -> list[Components]:
        """What a pattern of profiles matches. Beside placeholders it may begin with `~/`; a relative one is below the
        working directory. Raises `globs.GlobError`.
        """
        for root, name in self._roots:
            if text == name or text.startswith(name + "/"):
                text = _literal(root) + text[len(name) :]
                break
        else:
            if text.startswith("{"):
                head = text.partition("}")[0] + "}"
                if "," not in head and "/" not in head:
                    raise globs.GlobError(f"{head} is no place of this run: {', '.join(sorted(self.known()))}")
            if text == "~" or text.startswith("~/"):
                text = _literal(self.home) + text[1:]
            elif not text.startswith(("/", "**")):
                text = f"{_literal(self._cwd)}/{text.removeprefix('./')}".removesuffix("/.")
        return [globs.components(each) for each in globs.alternatives(os.fsencode(text))]

    def known(self) -> dict[str, str]:
        """The places by their names, braces and all."""
        return {name: root for root, name in self._roots}


def _path(value: object) -> str:
    """An absolute path without a slash at its end; empty for all else, and for the root, which names nothing."""
    return value.rstrip("/") if isinstance(value, str) and value.startswith("/") else ""


def _literal(path: str) -> str:
    return os.fsdecode(globs.escape(os.fsencode(path)))


def _below(path: str, root: str) -> bool:
    return bool(root) and (path == root or path.startswith(root + "/"))
