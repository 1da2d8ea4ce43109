"""What a profile says of its credential brokers (`[[broker]]`)."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


_MOST = 1 << 20  # bytes of a file that a broker needs


class Broker:
    """Which variables hold keys that stay with the supervisor, and for which upstream.

    `base_url` is the variable by which the worker finds the broker; with `arguments` it is told by these instead.
    `file` holds the key of the first variable where that is not set; it is closed to the worker. `needs` is a file and
    a text in it without which the program does not take the broker's address.
    """

    __slots__ = ("arguments", "base_url", "file", "name", "needs", "source", "upstream", "variables")

    def __init__(
        self,
        name: str,
        upstream: str,
        base_url: str,
        variables: tuple[str, ...],
        file: str,
        arguments: tuple[str, ...],
        needs: tuple[str, ...],
        source: str,
    ) -> None:
        self.name = name
        self.upstream = upstream
        self.base_url = base_url
        self.variables = variables
        self.file = file
        self.arguments = arguments
        self.needs = needs
        self.source = source

    @property
    def reason(self) -> str:
        return f"the broker {self.name}, which holds the key for it"

    def may_apply(self, environment: Mapping[bytes, bytes]) -> bool:
        """Whether there could be a key to keep."""
        if not self.file and not any(environment.get(os.fsencode(name)) for name in self.variables):
            return False
        if not self.needs:
            return True
        file, text = self.needs
        try:
            with open(os.path.expanduser(file), "rb") as found:
                return text.encode() in found.read(_MOST)
        except OSError:
            return False
