r"""What a program writes, reduced to what cannot leave its part of the screen. Pure. ECMA-48, console_codes(4)

Text, line ends, tabs, backspaces, colours, and moves of the cursor that stop at the margins of the scrolling region
pass; everything else (other places of the screen, other margins, titles, clipboards, answers of the terminal, character
sets) is dropped. So no sequence of bytes can write below the region, where our lines are.
"""

from __future__ import annotations

import codecs

_PASSING = frozenset("\n\r\t\b\a")
_ESCAPE = "\x1b"
# Final bytes of control sequences that pass: up, down, forward, back, to a column, erase in the line, colours; and what
# erases a part of the screen, where our lines must be drawn once more.
_HARMLESS = frozenset("ABCDGKmJ")
_ERASING = "J"
_CURSOR = frozenset({"?25l", "?25h"})  # hidden, shown
_WHOLE_SCREEN = frozenset({"?47h", "?1047h", "?1049h"})
_PARAMETERS = frozenset("0123456789;:")
_LONGEST = 64  # characters of a sequence that is kept until it is whole; a longer one is dropped
_STRINGS = frozenset("PX]^_")  # DCS, SOS, OSC, PM, APC: text for the terminal, up to their end

_TEXT, _AFTER_ESCAPE, _SEQUENCE, _STRING, _STRING_ESCAPE, _INTERMEDIATE = range(6)


class Filter:
    """Of one stream: sequences and characters may be cut anywhere between two `feed`s.

    `erased`: something of what passed since that was last set to False erases our lines too. `drawing`: the program
    wants the whole screen, which it does not get.
    """

    def __init__(self) -> None:
        self.erased = False
        self.drawing = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _TEXT
        self._kept = ""

    def feed(self, data: bytes) -> str:
        """What may be written of it."""
        text = self._decoder.decode(data)
        if self._state == _TEXT and text.isascii() and text.isprintable():
            return text
        passed: list[str] = []
        for c in text:
            self._take(c, passed)
        return "".join(passed)

    def _take(self, c: str, passed: list[str]) -> None:
        state = self._state
        if state == _TEXT:
            if c == _ESCAPE:
                self._state = _AFTER_ESCAPE
            elif c in _PASSING or not _is_control(c):
                passed.append(c)
        elif c in "\x18\x1a":  # CAN and SUB end every sequence
            self._state = _TEXT
        elif state in (_STRING, _STRING_ESCAPE):
            self._in_string(c)
        elif c == _ESCAPE:
            self._state = _AFTER_ESCAPE
        elif state == _AFTER_ESCAPE:
            self._kept = ""
            if c == "[":
                self._state = _SEQUENCE
            elif c in _STRINGS:
                self._state = _STRING
            elif " " <= c <= "/":
                self._state = _INTERMEDIATE
            else:
                self._state = _TEXT
        elif state == _INTERMEDIATE:
            if not " " <= c <= "/":
                self._state = _TEXT
        elif "@" <= c <= "~":  # the end of a control sequence
            whole = self._kept + c
            if (c in _HARMLESS and _PARAMETERS.issuperset(self._kept)) or whole in _CURSOR:
                passed.append(f"{_ESCAPE}[{whole}")
                self.erased = self.erased or c == _ERASING
            self.drawing = self.drawing or whole in _WHOLE_SCREEN
            self._state = _TEXT
        elif " " <= c <= "?":
            if len(self._kept) < _LONGEST:
                self._kept += c
            else:
                self._kept = "?"  # no parameter of ours: it is dropped at its end
        elif c in _PASSING:  # terminals obey these in the middle of a sequence
            passed.append(c)

    def _in_string(self, c: str) -> None:
        if c == "\a" or (self._state == _STRING_ESCAPE and c == "\\") or c == "\x9c":
            self._state = _TEXT
        elif self._state == _STRING_ESCAPE and c != _ESCAPE:  # an escape ends the string, and begins another sequence
            self._state = _AFTER_ESCAPE
            self._take(c, [])
        else:
            self._state = _STRING_ESCAPE if c == _ESCAPE else _STRING


def _is_control(c: str) -> bool:
    """C0, DEL and C1."""
    return c < " " or "\x7f" <= c <= "\x9f"
