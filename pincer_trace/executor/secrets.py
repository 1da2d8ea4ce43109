"""What was shown of protected files in this session.

A file is known by its object. The same version of it is shown by the same view each time, so that what was read twice
can be compared and edited. All of it is in memory alone.
"""

from __future__ import annotations

import time
from _hashlib import openssl_sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from pincer_trace.plaintext.handles import Handle, HandleStore
    from pincer_trace.plaintext.summary import View

    Object = tuple[int, int]  # device, inode

PRINCIPAL = "tree"  # the session's own processes, all of them


class _File:
    """A protected file, by the name that it is protected by, and the view of its last version."""

    __slots__ = ("digest", "number", "path", "view")

    def __init__(self, number: int, path: bytes, digest: bytes) -> None:
        self.number = number
        self.path = path
        self.digest = digest
        self.view: View | None = None


class Secrets:
    """Belongs to the receiving thread."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._kept: HandleStore | None = None
        self._files: dict[Object, _File] = {}
        self._count = 0

    @property
    def store(self) -> HandleStore:
        """All handles of the session."""
        if self._kept is None:
            from pincer_trace.plaintext.handles import HandleStore

            self._kept = HandleStore()
        return self._kept

    def view(self, path: bytes, found: os.stat_result, content: bytes) -> View:
        """The view of a file that has this content now. Raises nothing."""
        digest = openssl_sha256(content).digest()
        key = found.st_dev, found.st_ino
        file = self._files.get(key)
        if file is None or file.digest != digest:
            self._count += 1
            file = self._files[key] = _File(self._count, path, digest)
        if file.view is None:
            file.view = self._summarise(file, content)
        return file.view

    def _summarise(self, file: _File, content: bytes) -> View:
        from pincer_trace.plaintext.handles import Scope
        from pincer_trace.plaintext.kinds import Kind
        from pincer_trace.plaintext.summary import summarise

        scope, now = Scope(PRINCIPAL, self._session, file.number, file.digest), time.monotonic()

        def issue(value: bytes, field: str) -> Handle:
            return self.store.issue(value, field=field, scope=scope, now=now)

        return summarise(content, Kind.of(file.path, content), issue)
