"""What was shown of protected files in this session, and what the files become that are made of it.

A file is known by its object; a save, which puts another object in its place, hands that on. The same version is shown
by the same view each time, so that what was read twice can be compared and edited. An edited view counts for as long as
nobody else changes the file. All of it is in memory alone.
"""

from __future__ import annotations

import time
from _hashlib import openssl_sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from pincer_trace.plaintext.handles import Handle, HandleStore, Scope
    from pincer_trace.plaintext.refusal import Refusal
    from pincer_trace.plaintext.restoring import Restored
    from pincer_trace.plaintext.summary import View

    Object = tuple[int, int]  # device, inode

PRINCIPAL = "tree"  # the session's own processes, all of them
_VIEWS = 8  # of one file, from which a save may come
_MARK = b"pincer:"


class _File:
    """A protected file, by the name that it is protected by: its version, and the views of those that its saves led
    through. The last one is the newest.
    """

    __slots__ = ("digest", "number", "path", "views")

    def __init__(self, number: int, path: bytes) -> None:
        self.number = number
        self.path = path
        self.digest = b""
        self.views: dict[bytes, View] = {}


class Secrets:
    """Belongs to the receiving thread."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._kept: HandleStore | None = None
        self._files: dict[Object, _File] = {}
        self._gone: dict[bytes, _File] = {}  # by the names that they had
        self._count = 0

    @property
    def store(self) -> HandleStore:
        """All handles of the session."""
        if self._kept is None:
            from pincer_trace.plaintext.handles import HandleStore

            self._kept = HandleStore()
        return self._kept

    @property
    def issued(self) -> HandleStore | None:
        """The same for any thread; None before the first handle."""
        return self._kept

    # -- reading ---------------------------------------------------------------------------------------------

    def view(self, path: bytes, found: os.stat_result, content: bytes) -> View:
        """The view of a file that has this content now. Raises nothing."""
        key = found.st_dev, found.st_ino
        file = self._files.get(key)
        if file is None:
            self._count += 1
            file = self._files[key] = _File(self._count, path)
        digest = openssl_sha256(content).digest()
        if digest != file.digest:  # somebody else changed it: what was shown before is of another version
            file.digest = digest
            file.views = {}
        view = file.views.get(digest)
        if view is None:
            view = file.views[digest] = self._summarise(file, content)
            while len(file.views) > _VIEWS:
                del file.views[next(iter(file.views))]
        return view

    def path_of(self, handle: Handle) -> bytes:
        """The protected file whose value it stands for; empty for none. For any thread."""
        for file in (*tuple(self._files.values()), *tuple(self._gone.values())):
            for view in tuple(file.views.values()):
                if handle in (view.remainder, *view.handles):
                    return file.path
        return b""

    def _summarise(self, file: _File, content: bytes) -> View:
        from pincer_trace.plaintext.kinds import Kind
        from pincer_trace.plaintext.summary import summarise

        scope, now = self._scope(file, file.digest), time.monotonic()

        def issue(value: bytes, field: str) -> Handle:
            return self.store.issue(value, field=field, scope=scope, now=now)

        return summarise(content, Kind.of(file.path, content), issue)

    def _scope(self, file: _File, version: bytes) -> Scope:
        from pincer_trace.plaintext.handles import Scope

        return Scope(PRINCIPAL, self._session, file.number, version)

    # -- saving ----------------------------------------------------------------------------------------------

    def restore(self, path: bytes, found: os.stat_result, content: bytes, edited: bytes) -> Restored | Refusal:
        """What a file that has this content now becomes, when an edited view is saved in its place."""
        self.view(path, found, content)
        return self._restored(self._files[found.st_dev, found.st_ino], edited)

    def appended(self, path: bytes, content: bytes, added: bytes) -> bytes | Refusal:
        """What a file that has this content becomes, when something is written behind it."""
        from pincer_trace.plaintext.kinds import Kind
        from pincer_trace.plaintext.restoring import append

        return append(added, content, Kind.of(path, content))

    def recall(self, path: bytes, edited: bytes) -> Restored | Refusal | None:
        """The same where nothing is there any more; None where it is no view of what was there."""
        file = self._gone.get(path)
        return self._restored(file, edited) if file is not None and _MARK in edited else None

    def _restored(self, file: _File, edited: bytes) -> Restored | Refusal:
        from pincer_trace.plaintext.handles import Save
        from pincer_trace.plaintext.restoring import restore

        version, view = list(file.views.items())[-1]
        for digest, other in file.views.items():
            if other.remainder.text.encode() in edited:
                version, view = digest, other
        scope, now = self._scope(file, version), time.monotonic()

        def against(handle: Handle) -> Refusal | None:
            found = self.store.resolve(handle, scope, Save(), now)
            return None if isinstance(found, bytes) else found

        return restore(edited, view, against)

    def saved(self, path: bytes, before: os.stat_result | None, after: os.stat_result, content: bytes) -> None:
        """The object `after`, with this content, took the place of `before`, or of what had left the name."""
        if before is not None:
            file = self._files.pop((before.st_dev, before.st_ino), None)
        else:
            file = self._gone.pop(path, None)
        if file is not None:
            file.digest = openssl_sha256(content).digest()
            self._files[after.st_dev, after.st_ino] = file

    def leaves(self, path: bytes, found: os.stat_result) -> None:
        """The object has left this name."""
        file = self._files.get((found.st_dev, found.st_ino))
        if file is not None and file.path == path:
            self._gone[path] = file

    def was_at(self, path: bytes) -> bool:
        """Whether a file that was shown has left this name."""
        return path in self._gone
