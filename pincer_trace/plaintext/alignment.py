"""Which lines of an edited text are which lines of the view it was made from."""

from __future__ import annotations

from itertools import pairwise

from pincer_trace.plaintext.handles import PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pincer_trace.plaintext.summary import View

    Pairs = list[tuple[int, int]]


def matches(view: View, lines: list[bytes]) -> dict[int, int]:
    """From edited lines to those of the view that kept their order; the number after its last is the remainder's.

    A line is known by what precedes its value, where that is there once, else by its handle, else by all of its text.
    The remainder's line is always matched, since it tells where hidden lines end.
    """
    last = len(view.shown)
    labels = _labels(view)
    owners = {handle.text.encode(): number for number, shown in enumerate(view.shown) for handle in shown.handles}
    rest = view.remainder.text.encode()
    claims: Pairs = []
    for number, line in enumerate(lines):
        owner = _owner(line, labels, owners)
        if rest in line:
            owner = last
        if owner is not None:
            claims.append((number, owner))
    anchors = _in_order(claims, last)
    result = dict(anchors)
    for (low, first), (high, end) in pairwise([(-1, -1), *anchors, (len(lines), last)]):
        wanted = first + 1
        for number in range(low + 1, high):
            for candidate in range(wanted, end):
                shown = view.shown[candidate]
                if not shown.handles and shown.text == lines[number] + b"\n":
                    result[number] = candidate
                    wanted = candidate + 1
                    break
    return result


def _labels(view: View) -> dict[bytes, int | None]:
    """What precedes the only value of a line; None where several lines have it."""
    labels: dict[bytes, int | None] = {}
    for number, shown in enumerate(view.shown):
        label = shown.line.pieces[0].shown
        if label and len(shown.handles) == 1:
            labels[label] = None if label in labels else number
    return labels


def _owner(line: bytes, labels: dict[bytes, int | None], owners: dict[bytes, int]) -> int | None:
    for label, number in labels.items():
        if number is not None and line.startswith(label):
            return number
    if PREFIX.encode() in line:
        for word, number in owners.items():
            if word in line:
                return number
    return None


def _in_order(claims: Pairs, last: int) -> Pairs:
    """The longest run of claims that rises in both, with the remainder's in it."""
    best: dict[int, Pairs] = {}  # the longest that ends with this line of the view
    for number, owner in claims:
        before = max((run for end, run in best.items() if end < owner), key=len, default=[])
        if owner == last or len(before) + 1 > len(best.get(owner, ())):
            best[owner] = [*before, (number, owner)]
        if owner == last:
            break
    return best.get(last, [])
