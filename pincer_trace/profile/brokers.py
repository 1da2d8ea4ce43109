"""What a profile says of its credential brokers (`[[broker]]`)."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Broker:
    """Which variables hold keys that stay with the supervisor, and for which upstream.

    `base_url` is the variable by which the worker finds the broker; with `arguments` it is told by these instead.
    `file` holds the key of the first variable where that is not set; it is closed to the worker.
    """

    __slots__ = ("arguments", "base_url", "file", "name", "source", "upstream", "variables")

    def __init__(
        self,
        name: str,
        upstream: str,
        base_url: str,
        variables: tuple[str, ...],
        file: str,
        arguments: tuple[str, ...],
        source: str,
    ) -> None:
        self.name = name
        self.upstream = upstream
        self.base_url = base_url
        self.variables = variables
        self.file = file
        self.arguments = arguments
        self.source = source

    @property
    def reason(self) -> str:
        return f"the broker {self.name}, which holds the key for it"

    def may_apply(self, environment: Mapping[bytes, bytes]) -> bool:
        """Whether there could be a key to keep."""
        return bool(self.file) or any(environment.get(os.fsencode(name)) for name in self.variables)
