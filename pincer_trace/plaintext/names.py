"""Which names a view shows. A name is whatever stands where a format has one: it may be a secret itself.

Shown is what is written as people write names: words of letters, joined by `_`, `-`, `.` or capitals, with few
digits. What has the shape of a token is not; nor is what is long. A word that somebody chose for a password and put
where a name belongs looks like any other word: that is the limit of judging by shape.
"""

from __future__ import annotations

import re

LONGEST = 40
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_.-]*")
_WORD = re.compile(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_JOINT = re.compile(rb"[_.-]+")
_INSIDE = re.compile(rb"[A-Za-z][0-9]+[A-Za-z]")
_TOKEN = re.compile(
    rb"(?:gh[opsur]_|github_pat_|glpat-|sk-|sk_|pk_|rk_|xox[a-z]-|npm_[A-Za-z0-9]{20}|pypi-|AKIA|ASIA|AIza|ya29\.|eyJ|hvs\.|shpat_|SG\."
    rb"|dop_v1_|hf_|pincer)"
)


def is_name(raw: bytes) -> bool:
    """Whether a view may show it."""
    if len(raw) > LONGEST or _NAME.fullmatch(raw) is None or _TOKEN.match(raw) is not None:
        return False
    if any(len(part) > 8 and _INSIDE.search(part) is not None for part in _JOINT.split(raw)):
        return False
    words = _WORD.findall(raw)
    digits = sum(len(word) for word in words if word.isdigit())
    letters = [word for word in words if not word.isdigit()]
    if digits > 4 or digits > len(raw) // 2 or len(words) - len(letters) > 2:
        return False
    if any(len(word) > 20 for word in letters):
        return False
    # random letters change between capitals and small ones all the time; words do so once each
    return len(letters) <= len(_JOINT.split(raw)) + 1 or sum(map(len, letters)) >= 3 * len(letters)
