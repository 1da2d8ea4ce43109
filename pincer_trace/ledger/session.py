"""A session's directory: `session.json`, what was run and how it ended, and `ledger.jsonl`, what it did.

Both are for the user alone (0700, 0600). While a supervisor lives it holds an exclusive flock on
`ledger.jsonl`, so that anybody can tell a running session from one that was killed without trusting process
numbers.
"""

from __future__ import annotations

import os
from errno import EEXIST
from time import gmtime, strftime, time

from pincer_trace import paths
from pincer_trace.errors import UserError
from pincer_trace.ledger.encode import encode
from pincer_trace.ledger.writer import Ledger

SESSION_FILE = "session.json"
LEDGER_FILE = "ledger.jsonl"
FORMAT = 1  # of session.json and ledger.jsonl; a reader refuses a higher one

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY


def sessions_directory(directory: str | None = None) -> str:
    """Where sessions are kept: `directory`, else `sessions` in the user's state directory."""
    return directory if directory is not None else os.path.join(paths.state_directory(), "sessions")


class Session:
    """One run. `id` like `20261130-031502-7f3a9c` (UTC), `path` of its directory, `ledger` to write to."""

    __slots__ = ("_dir_fd", "_durable", "_facts", "id", "ledger", "path")

    def __init__(
        self, session_id: str, path: str, dir_fd: int, facts: dict[str, object], *, durable: bool = False
    ) -> None:
        self.id = session_id
        self.path = path
        self._dir_fd = dir_fd  # kept: the directory may be renamed while we run
        self._facts = facts
        self._durable = durable
        self.ledger = Ledger(_open_ledger(dir_fd), self, durable=durable)

    @classmethod
    def reserve(cls, directory: str | None) -> str:
        """Make a session's empty directory under `directory` (default: the user's state directory); its path.

        It exists before the profile is compiled, so that the profile can close it to the worker. Raises `UserError`.
        """
        parent = sessions_directory(directory)
        try:
            os.makedirs(parent, mode=0o700, exist_ok=True)
            return _make_directory(os.path.abspath(parent))[1]
        except OSError as error:
            raise _cannot(parent, error) from error

    @property
    def selector(self) -> str:
        """How a person names this session to the other commands: by its id, or where it lies elsewhere by its path."""
        try:
            if os.path.dirname(self.path) == os.path.abspath(sessions_directory()):
                return self.id
        except UserError:  # without a home there is no usual place
            pass
        return "'" + self.path.replace("'", "'\"'\"'") + "'"

    @property
    def elsewhere(self) -> str:
        """What a command needs behind it, where the session is not found without: a space and its path."""
        return "" if self.selector == self.id else f" {self.selector}"

    @classmethod
    def create(
        cls,
        path: str,
        *,
        command: list[bytes],
        profile_name: str,
        profile_digest: bytes,
        workspace: bytes,
        details: dict[str, object],
        durable: bool = False,
    ) -> Session:
        """Begin the session in the directory `path`, which `reserve` made, and its ledger.

        `details` are further facts for session.json (layers, kernel). With `durable` the records survive a power cut
        too (see `Ledger`). Raises `UserError` when it cannot.
        """
        session_id = os.path.basename(path)
        try:
            dir_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise _cannot(path, error) from error
        now = time()
        facts: dict[str, object] = {
            "format": FORMAT,
            "id": session_id,
            "started": round(now, 6),
            "command": command,
            "profile": profile_name,
            "digest": profile_digest.hex(),
            "workspace": workspace,
            "uid": os.getuid(),
            **details,
        }
        session = None
        try:
            session = cls(session_id, path, dir_fd, facts, durable=durable)
            session._write(facts)
            if durable:
                _sync_directory(os.path.dirname(path))  # which holds the session's own name
        except OSError as error:
            if session is not None:
                session.ledger.leave()
            else:
                os.close(dir_fd)
            remove(path)
            raise _cannot(path, error) from error
        return session

    def note(self, **facts: object) -> None:
        """More facts, for the next time that session.json is written."""
        self._facts.update(facts)

    def save(self) -> None:
        """Write session.json anew while the run goes on, if that can be: at the end it is written anyway."""
        try:
            self._write(self._facts)
        except OSError:
            pass  # the old one stays whole; `finish` tries again

    def finish(self, exit_status: int | None, leftover: int, counts: dict[str, int]) -> None:
        """Replace session.json by one that also tells the end. Called by `Ledger.close`.

        If that fails the old one stays and the session reads as "ended without a word": the command's exit
        status is still the command's own.
        """
        self._facts.update(ended=round(time(), 6), exit=exit_status, leftover=leftover, counts=counts)
        try:
            self._write(self._facts)
        except OSError:
            pass
        finally:
            self.leave()

    def leave(self) -> None:
        """Close the directory. Called by `Ledger.leave` and at the end."""
        os.close(self._dir_fd)
        self._dir_fd = -1

    def _write(self, facts: dict[str, object]) -> None:
        """Replace session.json atomically: a reader sees the old one or the new one, whole."""
        new = f".{SESSION_FILE}.new"
        try:
            fd = os.open(new, os.O_WRONLY | _NEW, 0o600, dir_fd=self._dir_fd)
        except FileExistsError:
            os.unlink(new, dir_fd=self._dir_fd)
            fd = os.open(new, os.O_WRONLY | _NEW, 0o600, dir_fd=self._dir_fd)
        try:
            view = memoryview((encode(facts) + "\n").encode("ascii"))
            while view:
                view = view[os.write(fd, view) :]
            if self._durable:
                os.fdatasync(fd)
        except OSError:
            os.unlink(new, dir_fd=self._dir_fd)
            raise
        finally:
            os.close(fd)
        os.rename(new, SESSION_FILE, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
        if self._durable:
            os.fsync(self._dir_fd)


def remove(path: str) -> None:
    """Take back the directory of a start that failed, with what we put there; what else is in it stays."""
    try:
        for name in (LEDGER_FILE, SESSION_FILE, *paths.TOLD_FILES):
            try:
                os.unlink(os.path.join(path, name))
            except FileNotFoundError:
                pass
        os.rmdir(path)
    except OSError:
        pass  # it stays, as an empty session: the start has failed already, and says why


def _make_directory(parent: str) -> tuple[str, str]:
    while True:
        session_id = strftime("%Y%m%d-%H%M%S-", gmtime()) + os.urandom(3).hex()
        path = os.path.join(parent, session_id)
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            if error.errno != EEXIST:
                raise
        else:
            return session_id, path


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_ledger(dir_fd: int) -> int:
    from fcntl import LOCK_EX, LOCK_NB, flock

    fd = os.open(LEDGER_FILE, os.O_WRONLY | os.O_APPEND | _NEW, 0o600, dir_fd=dir_fd)
    try:
        flock(fd, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _cannot(path: str, error: OSError) -> UserError:
    return UserError(
        f"no session directory at {paths.display(path)}: {error.strerror}; choose another place with --session-dir DIR"
    )
