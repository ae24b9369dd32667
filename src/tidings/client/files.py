"""The files of a client: passwords, and cursors of consumers. Only the owner can read new files.

Give a password in a file or in the environment. On the command line, other users of the machine
could see the password.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from tidings.client.errors import NoPassword, WrongState
from tidings.core.model.cursors import NOW
from tidings.http.outbound.files import sync_folder

MODE = 0o600
_PASSWORD_BYTES_MAX = 1024  # a longer file is another kind of file, given by mistake
# The interval of saving a cursor. After a kill, the events of this time are delivered again. It is
# not shorter, because fsync takes milliseconds.
SAVE_EVERY_S = 1.0
EVERYTHING = "0"
_CURSOR = re.compile(r"[0-9]{0,13}|[0-9a-f]{24}", re.ASCII)
_TEXT_BYTES_MAX = 1024  # a cursor is far shorter, so a longer file is another kind of file


def make_private(path: Path) -> None:
    """Create *path* empty if it is missing, and remove the permissions of other users.

    Call this function before SQLite opens the file, because SQLite gives its `-wal` and `-shm`
    files the mode of the database. Errors are ignored, because SQLite reports them itself.
    """
    with suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            os.fchmod(handle, MODE)
        finally:
            os.close(handle)


def private_opener(path: str, flags: int) -> int:
    """Implement `opener` of `open` so that only this user can read a new file."""
    return os.open(path, flags, MODE)


def read_password(path: Path) -> str:
    """Return the password in the file *path*, without its trailing line ending.

    Raises:
        NoPassword: the file cannot be read, or does not contain a password.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        raise NoPassword(f"cannot read {path}: {error.strerror}") from None
    return parse_password(content, str(path))


def parse_password(content: bytes, source: str) -> str:
    """Return the password in *content*, without its trailing line ending.

    *source* names the origin of *content* in errors, which never contain the password.

    Raises:
        NoPassword: *content* is not a password.
    """
    password = content.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    if len(content) > _PASSWORD_BYTES_MAX or "\ufffd" in password or not password.isprintable():
        rule = f"must contain one line of printable text, at most {_PASSWORD_BYTES_MAX:,} bytes"
        raise NoPassword(f"{source} {rule}")
    if not password:
        raise NoPassword(f"{source} is empty")
    return password


def write_private(path: Path, content: bytes) -> None:
    """Replace the content of the file *path*, which only this user can read.

    Write a temporary file, rename it, and sync the folder: after a crash, the file has the complete
    old or new content.

    Raises:
        OSError: the file cannot be written, and is unchanged.
    """
    path = path.resolve()  # a symbolic link is kept, and its target replaced
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb", opener=private_opener) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


class StateFile:
    """A cursor in the file *path*, written through a temporary file in the same folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved = ""

    def load(self) -> str | None:
        """Return the cursor in the file; None if the file is missing or empty.

        Spaces around the cursor and upper-case digits are accepted, because people may write the
        file by hand.

        Raises:
            WrongState: the file cannot be read or does not contain a cursor.
        """
        try:
            with self._path.open("rb") as file:
                text = file.read(_TEXT_BYTES_MAX).decode("utf-8", "replace").strip().lower()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise WrongState(f"cannot read {self._path}: {error.strerror}") from None
        if not _CURSOR.fullmatch(text):
            raise WrongState(f"{self._path} does not hold a cursor")
        self._saved = text
        return text or None

    def save(self, cursor: str) -> None:
        """Write *cursor* now, unless it is already saved.

        Raises:
            WrongState: the file cannot be written, or a consumer cannot resume from *cursor*.
        """
        if cursor == self._saved:
            return
        if not _CURSOR.fullmatch(cursor):
            raise WrongState(f"the feed sent {cursor!r}, which is not a cursor")
        try:
            write_private(self._path, cursor.encode())
        except OSError as error:
            raise WrongState(f"cannot write {self._path}: {error.strerror}") from None
        self._saved = cursor


def start(state: StateFile | None, cursor: str | None, *, allow_replication: bool) -> str:
    """Return where to start: the cursor in *state*, else *cursor*, else the end of the log.

    If *allow_replication* is True, *cursor* is None, and *state* has no cursor, start with a copy
    of everything. Without *state*, do not copy, because a first start cannot be distinguished from
    a later start.

    Raises:
        WrongState: the file cannot be read or written, or does not contain a cursor.
    """
    if state is None:
        return cursor or NOW
    begun = state.load() or cursor
    if begun is None and allow_replication:
        state.save(EVERYTHING)  # so that a restart resumes an interrupted copy, or begins it again
        return EVERYTHING
    return begun or NOW
