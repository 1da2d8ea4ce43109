"""The files by which programs look names up, as they are to see them: `resolv.conf`, `nsswitch.conf`, `hosts` (P83).

They name the resolver of this session, and nobody else's. Nothing is protected by that: who goes another way meets the
judgement of addresses. Each is a sealed copy in memory, made when it is first read, and anew when the file has changed.
"""

from __future__ import annotations

import os

from pincer_trace.effects import CONNECT
from pincer_trace.executor.descriptors import sealed
from pincer_trace.gateway import hosts
from pincer_trace.kernel import inet
from pincer_trace.kernel.bare import socket
from pincer_trace.profile import ALLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pincer_trace.gateway.hosts import Hosts
    from pincer_trace.gateway.hostsfile import Listed
    from pincer_trace.profile import Profile

    Version = tuple[int, int, int, int]

_MOST = 1 << 26  # bytes of a file that is read
_HOSTS = b"/etc/hosts"
RESOLVER = b"/etc/resolv.conf"


class HostFiles:
    """`serves(path)` tells whether there is a view of what has this name; `open` gives it. `listed` says where names
    of /etc/hosts lead that have an address of the session in the view: as the file was when it was last read.
    """

    def __init__(self, profile: Profile, table: Hosts) -> None:
        self._profile = profile
        self._hosts = table
        self.listed: Listed = {}
        self._here: tuple[Version, Listed] | None = None
        makers: dict[bytes, Callable[[bytes], bytes]] = {
            RESOLVER: resolver,
            b"/etc/nsswitch.conf": switch,
            _HOSTS: self._with_named,
        }
        self._makers = makers | {os.path.realpath(path): maker for path, maker in makers.items()}
        self._made: dict[bytes, tuple[Version, int]] = {}
        self.serves = self._makers.__contains__
        self.directories = frozenset(path.rpartition(b"/")[0] for path in self._makers)

    def open(self, path: bytes, names: int, number: bytes, ourselves: Callable[[Callable[[], bytes]], bytes]) -> int:
        """The view of the file `path`, whose own descriptor is `number` in the directory `names`; it is made by our own
        ids, in `ourselves`. Raises OSError.
        """
        with open(os.open(number, os.O_RDONLY | os.O_CLOEXEC, dir_fd=names), "rb") as real:
            version = _version(os.fstat(real.fileno()))
            kept = self._made.get(path)
            if kept is None or kept[0] != version:
                name = os.fsdecode(path.rpartition(b"/")[2])
                content = real.read(_MOST)
                made = sealed(name, ourselves(lambda: self._makers[path](content)))
                if kept is not None:
                    os.close(kept[1])
                kept = self._made[path] = version, made
        return os.open(b"%d" % kept[1], os.O_RDONLY | os.O_CLOEXEC, dir_fd=names)

    def open_absent(self) -> int:
        """The view of a `resolv.conf` that is not there, which stands for a server on this machine. Raises OSError."""
        return sealed("resolv.conf", resolver(b""))

    def names_of(self, host: bytes) -> tuple[bytes, ...]:
        """The names that /etc/hosts gives that address, but `localhost`."""
        from pincer_trace.gateway import hostsfile

        try:
            with open(_HOSTS, "rb") as real:
                version = _version(os.fstat(real.fileno()))
                if self._here is None or self._here[0] != version:
                    self._here = version, hostsfile.names_by_address(real.read(_MOST) if self._is_kept() else b"")
        except OSError:
            return ()
        return self._here[1].get(host, ())

    def _with_named(self, content: bytes) -> bytes:
        """The file with names in the place of addresses, and with the names that the profile allows, or expects to
        refuse, besides: for libraries that ask no server by TCP (musl).
        """
        from pincer_trace.gateway import hostsfile

        known = {word for line in content.split(b"\n") for word in hostsfile.words_of(line.lower())[1:]}
        named = dict.fromkeys(
            name
            for rule in self._profile.rules
            if (rule.verdict == ALLOW or rule.expected) and CONNECT in rule.effects and rule.pattern.startswith(b"//")
            and (name := inet.host_name(rule.pattern[2:].rpartition(b":")[0])) and name not in known
        )  # fmt: skip
        lines = [
            b"%b %b" % (inet.written(address).encode(), name)
            for name in named
            for family in (socket.AF_INET, socket.AF_INET6)
            if (address := self._hosts.address(name, family))
        ]
        if self._is_kept():  # else a name would lead where the worker says
            content, self.listed = hostsfile.named(content, self._hosts, _is_here)
        return content + b"".join(b"\n%b" % line for line in lines) + b"\n" if lines else content

    def _is_kept(self) -> bool:
        """Whether the worker can change nothing in the file, by itself."""
        return all(self._profile.is_closed(path) for path in (_HOSTS, os.path.realpath(_HOSTS)))


def _version(found: os.stat_result) -> Version:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _is_here(host: bytes) -> bool:
    """Whether that address is one of this machine, or no single host's."""
    from pincer_trace.kernel import routes

    if not inet.is_unicast(host):
        return True
    try:
        return routes.way_to(host) == routes.OWN
    except OSError:
        return True


def resolver(_content: bytes) -> bytes:
    """resolv.conf(5): one server, by TCP, asked for each name as it is."""
    where = inet.written(hosts.stub_address()).encode()
    return (
        b"# pincer-trace answers: a name is judged when it is connected to\nnameserver %b\nsearch .\noptions use-vc\n"
        % where
    )


def switch(content: bytes) -> bytes:
    """nsswitch.conf(5): hosts by files and the resolver alone."""
    lines = content.split(b"\n")
    return b"\n".join(b"hosts: files dns" if line.lstrip().startswith(b"hosts:") else line for line in lines)
