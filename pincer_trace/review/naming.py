"""Paths of a run by the places that profiles name: `{workspace}/a.py`, `{home}/.npmrc`, and back again.

Two runs of the same thing, by two people on two machines, then have the same names. Nothing is guessed here: what a
learned profile leaves open of a name is for `normal`.
"""

from __future__ import annotations

import os

from pincer_trace.profile import globs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from pincer_trace.profile import Places
    from pincer_trace.profile.globs import Components


class Names:
    """The places of one run, as text. `more` are further ones, by the name that they get."""

    __slots__ = ("_cwd", "_home", "_roots")

    def __init__(self, places: Places, more: Mapping[str, str] | None = None) -> None:
        found = [(os.fsdecode(directory), name) for directory, name in places.named()]
        found += [(os.fsdecode(home), "homes") for home in places.homes if home not in (places.home, b"/")]
        found += [(os.path.realpath(path), name) for name, path in (more or {}).items()]
        roots = [(path, "{" + name + "}") for path, name in found]
        self._roots = sorted(roots, key=lambda root: -len(root[0]))  # a stable sort: of two names the first counts
        self._cwd, self._home = os.fsdecode(places.cwd), os.fsdecode(places.home.rstrip(b"/"))

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
                text = _literal(self._home) + text[1:]
            elif not text.startswith(("/", "**")):
                text = f"{_literal(self._cwd)}/{text.removeprefix('./')}".removesuffix("/.")
        return [globs.components(each) for each in globs.alternatives(os.fsencode(text))]

    def known(self) -> dict[str, str]:
        """The places by their names, braces and all."""
        return {name: root for root, name in self._roots}


def _literal(path: str) -> str:
    return os.fsdecode(globs.escape(os.fsencode(path)))


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root + "/")
