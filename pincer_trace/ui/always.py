"""`approve --for always`: the profile lines that allow from now on what was asked, and where they go.

They go into the user's own profile of the name that the session was started with, which every worker is kept out of
(P81); they count from the next run on. One that is not there yet is made, and extends the shipped one of that name.
"""

from __future__ import annotations

import os

from pincer_trace import effects, paths
from pincer_trace.errors import UserError
from pincer_trace.ledger.read import raw
from pincer_trace.profile import Places, globs, loading, model, source
from pincer_trace.profile.show import rule_text
from pincer_trace.review.past import Past
from pincer_trace.twin.staging import parts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pincer_trace.profile import Profile


class NoLine(Exception):
    """No line in a profile can allow it. The text says why."""


class Addition:
    """`text` for the end of the profile in `file`; `head` where that file is still to be made."""

    def __init__(self, file: str, head: str, text: str, places: Places) -> None:
        self.file = file
        self.head = head
        self.text = text
        self._places = places

    def write(self) -> bool:
        """Append it, in one piece. False when it is there already. Raises UserError."""
        try:
            content = _content(self.file)
            if self.text.encode() in content:
                return False
            os.makedirs(os.path.dirname(self.file), 0o700, exist_ok=True)
            gap = b"" if not content or content.endswith(b"\n\n") else b"\n" if content.endswith(b"\n") else b"\n\n"
            added = gap + (b"" if content else self.head.encode()) + self.text.encode()
            source.compile_profile(self.file, content + added, self._places)  # a mistake in it would stop every run
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY
            descriptor = os.open(self.file, flags, 0o600)
            try:
                written = os.write(descriptor, added)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UserError(f"{paths.display(self.file)} cannot be written: {error.strerror}") from error
        if written != len(added):
            raise UserError(f"{paths.display(self.file)} could not be written whole: the disk is full; mend its end")
        return True


def addition(facts: dict[str, Any], question: dict[str, Any]) -> Addition:
    """What to add for `question` of the session `facts`. Raises NoLine, UserError."""
    past = Past(facts["path"])
    profile = past.profile()
    effect = str(question.get("effect"))
    path = raw(str(question.get("to") or question.get("path")))  # a rename is judged where it arrives
    text = _lines(profile, _effects(effect, question.get("manner")), path, question)
    if loading.is_file(past.name):
        raise NoLine(f"the profile is the file {paths.display(past.name)}, which is yours to edit; add to it:\n{text}")
    config = raw(facts["judged_by"]["places"]["config"])
    places = Places(cwd=b"/", workspace=b"/", home=b"/", tmp=b"/", state=b"/", config=config)
    file = os.path.join(loading.user_profiles(places), f"{past.name}.toml")
    return Addition(file, f'extends = "{past.name}"\n\n', text, places)


def _effects(effect: str, manner: object) -> list[str]:
    """The effect, and what the same call does besides. The words of other effects' manners a worker may choose."""
    said = manner.split(" and ") if isinstance(manner, str) and effect == effects.WRITE else []
    return [effect, *(other for other, words in effects.ALONG.items() if words in said)]


def _lines(profile: Profile, names: list[str], path: bytes, question: dict[str, Any]) -> str:
    wanted_by, covers = str(question.get("rule", "")), question.get("covers")
    matching = (rule for name in names for rule in profile.matching(name, path))
    rule = next((each for each in matching if each.source == wanted_by), None)
    if rule is None or rule.tier == model.BUILT_IN:
        raise NoLine("it was not a rule for this path that wanted a confirmation")
    asked = [name for name in names if name in rule.effects]
    pattern = globs.escape(path)
    if isinstance(covers, str):
        name = b"".join(b"*" if piece is None else globs.escape(piece) for piece in parts_of(raw(covers)))
        pattern = globs.escape(path.rpartition(b"/")[0]) + b"/" + name
    free = all(_is_granted(profile, name, path) for name in asked)
    protected = rule.tier == model.PROTECTION
    text = rule_text(asked, pattern, protection=True) + "\n" if protected else ""
    return text if free and protected else text + rule_text(asked, pattern, protection=False)


def _is_granted(profile: Profile, name: str, path: bytes) -> bool:
    granted = next((each for each in profile.matching(name, path) if each.tier == model.GRANT), None)
    return granted is not None and granted.verdict == model.ALLOW and not granted.when and not granted.exe


def _content(file: str) -> bytes:
    try:
        return loading.read(file)
    except UserError as error:
        if isinstance(error.__context__, FileNotFoundError):
            return b""
        raise
