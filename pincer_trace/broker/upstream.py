"""Where a broker sends requests: the base URL of an API, taken apart."""

from __future__ import annotations

_PORTS = {"http": 80, "https": 443}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Upstream:
    """`scheme://host:port/path`; the path without a slash at its end."""

    __slots__ = ("host", "path", "port", "scheme")

    def __init__(self, scheme: str, host: str, port: int, path: str = "") -> None:
        self.scheme = scheme
        self.host = host
        self.port = port
        self.path = path

    @classmethod
    def parse(cls, url: str) -> Upstream:
        """Raises ValueError, which says what is wrong with it."""
        scheme, separator, rest = url.partition("://")
        scheme = scheme.lower()
        if not separator or scheme not in _PORTS:
            raise ValueError("neither https:// nor http://")
        if not (url.isascii() and url.isprintable()) or set(url) & set(' "<>\\^`{|}'):
            raise ValueError("a character that no URL has")
        authority, slash, path = rest.partition("/")
        if "@" in authority or set(rest) & set("?#"):
            raise ValueError("only scheme, host, port and path")
        host, port = _host_and_port(authority, _PORTS[scheme])
        return cls(scheme, host, port, (slash + path).rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        return self.target.removesuffix(f":{_PORTS[self.scheme]}")

    @property
    def target(self) -> str:
        """The same with a port in any case, as CONNECT has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way reads what is sent: by TLS, or since it does not leave this machine."""
        return self.scheme == "https" or self.host in _LOOPBACK


def _host_and_port(authority: str, usual: int) -> tuple[str, int]:
    if authority.startswith("["):
        host, closed, rest = authority[1:].partition("]")
        if not closed or set(host) - set("0123456789abcdefABCDEF:."):
            raise ValueError("no IPv6 address in the brackets")
    else:
        host, colon, port = authority.partition(":")
        rest = colon + port
        if set(host.lower()) - set("abcdefghijklmnopqrstuvwxyz0123456789.-_"):
            raise ValueError("no host name")
    if not host:
        raise ValueError("no host")
    if not rest:
        return host.lower(), usual
    digits = rest[1:]
    if rest[0] != ":" or not (digits.isascii() and digits.isdecimal() and 0 < int(digits[:6]) < 1 << 16):
        raise ValueError("no port from 1 to 65535")
    return host.lower(), int(digits)
