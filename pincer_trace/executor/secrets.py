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
_BYTES = 64 * 1024 * 1024  # of all files that views are kept of
_LASTS = 3600.0  # seconds that a view is shown again; what its handles stand for is kept longer
MARK = b"pincer:"  # each handle begins so (plaintext.handles, which is not imported at the start)


class _File:
    """A protected file, by the name that it is protected by: its version, and the views of those that its saves led
    through. The last one is the newest, and `shown` that of the version that is there, once it was read.
    """

    __slots__ = ("digest", "made", "number", "path", "shown", "views")

    def __init__(self, number: int, path: bytes) -> None:
        self.number = number
        self.path = path
        self.digest = b""
        self.made = 0.0  # when the newest view was
        self.shown: View | None = None
        self.views: list[tuple[bytes, View]] = []  # each with the digest of its version


class Secrets:
    """Belongs to the receiving thread."""

    def __init__(self, session: str, mode: str = "default") -> None:
        self._session = session
        self._mode = mode
        self._kept: HandleStore | None = None
        self._files: dict[Object, _File] = {}
        self._gone: dict[bytes, _File] = {}  # by the names that they had
        self._count = 0
        self._bytes = 0
        self.ready = False

    def load(self) -> None:
        """Import what views are made with: later, the ids in force might not reach the library."""
        from pincer_trace.plaintext import formats, kinds, restoring, summary  # noqa: F401 - for later

        for format in formats.ALL:
            format.load()
        self.ready = True

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
        file = self._file(path, found)
        shown = self._same_version(file, content)
        if shown is None or time.monotonic() - file.made > _LASTS:
            shown = self._summarise(file, content)
            file.views.append((file.digest, shown))
            file.shown = shown
            file.made = time.monotonic()
            self._bytes += len(content)
            if len(file.views) > _VIEWS:
                self._drop(file)
            self._make_room(file)
        return shown

    def _file(self, path: bytes, found: os.stat_result) -> _File:
        key = found.st_dev, found.st_ino
        file = self._files.get(key)
        if file is None or file.path != path:  # another file has the number by now
            self._count += 1
            file = _File(self._count, path)
            self._is(key, file)
        return file

    def _is(self, key: Object, file: _File) -> None:
        """The object is this file; what had its number before is not any more."""
        before = self._files.get(key)
        if before is not None and before is not file and self._gone.get(before.path) is not before:
            while before.views:
                self._drop(before)
        self._files[key] = file

    def _same_version(self, file: _File, content: bytes) -> View | None:
        """The view of this content, if one was read since the last save. Where somebody else changed it, those before
        are of another version.
        """
        digest = openssl_sha256(content).digest()
        if digest != file.digest:
            file.digest = digest
            while file.views:
                self._drop(file)
        return file.shown

    def _drop(self, file: _File) -> None:
        """The oldest view."""
        view = file.views.pop(0)[1]
        self._bytes -= len(view.content)
        if view is file.shown:
            file.shown = None

    def _make_room(self, latest: _File) -> None:
        """What is forgotten must be read again before it is saved."""
        for file in (*tuple(self._gone.values()), *tuple(self._files.values())):
            while self._bytes > _BYTES and file is not latest and file.views:
                self._drop(file)

    def value(self, text: bytes) -> tuple[bytes, bytes, str]:
        """The protected file behind a handle, the value that was shown by it, and what stands against using it."""
        from pincer_trace.plaintext.handles import Handle
        from pincer_trace.plaintext.refusal import Refusal

        handle = Handle.parse(text.decode("ascii", "replace"))
        if handle is None or self._kept is None:
            return b"", b"", "that is no handle of this run"
        value = self._kept.reveal(handle, self._session, time.monotonic())
        if isinstance(value, Refusal):
            return b"", b"", value.text
        return self.path_of(handle), value, ""

    def path_of(self, handle: Handle) -> bytes:
        """The protected file whose value it stands for; empty for none. For any thread."""
        match self._kept.object(handle) if self._kept is not None else None:
            case (int(), bytes(path)):
                return path
        return b""

    def _summarise(self, file: _File, content: bytes) -> View:
        from pincer_trace.plaintext.kinds import Kind
        from pincer_trace.plaintext.summary import MODES, summarise

        scope, now = self._scope(file, file.digest), time.monotonic()

        def issue(value: bytes, field: str) -> Handle:
            return self.store.issue(value, field=field, scope=scope, now=now)

        return summarise(content, Kind.of(file.path, content), issue, MODES[self._mode])

    def _scope(self, file: _File, version: bytes) -> Scope:
        from pincer_trace.plaintext.handles import Scope

        return Scope(PRINCIPAL, self._session, (file.number, file.path), version)

    # -- saving ----------------------------------------------------------------------------------------------

    def restore(self, path: bytes, found: os.stat_result, content: bytes, edited: bytes) -> Restored | Refusal:
        """What a file that has this content now becomes, when an edited view is saved in its place."""
        file = self._file(path, found)
        self._same_version(file, content)
        if not file.views:
            self.view(path, found, content)
        return self._restored(file, edited)

    def appended(self, path: bytes, content: bytes, added: bytes) -> bytes | Refusal:
        """What a file that has this content becomes, when something is written behind it."""
        from pincer_trace.plaintext.kinds import Kind
        from pincer_trace.plaintext.restoring import append

        return append(added, content, Kind.of(path, content))

    def recall(self, path: bytes, edited: bytes) -> Restored | Refusal | None:
        """The same where nothing is there any more; None where it is no view of what was there."""
        file = self._gone.get(path)
        return self._restored(file, edited) if file is not None and file.views and MARK in edited else None

    def _restored(self, file: _File, edited: bytes) -> Restored | Refusal:
        from pincer_trace.plaintext.handles import Save
        from pincer_trace.plaintext.restoring import restore

        version, view = file.views[-1]
        for digest, other in file.views:
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
            file.shown = None  # handles that come back would tell that a guess is what was hidden before
            self._is((after.st_dev, after.st_ino), file)

    def leaves(self, path: bytes, found: os.stat_result) -> None:
        """The object has left this name."""
        file = self._files.get((found.st_dev, found.st_ino))
        if file is not None and file.path == path:
            self._gone[path] = file

    def was_at(self, path: bytes) -> bool:
        """Whether a file that was shown has left this name."""
        return path in self._gone
