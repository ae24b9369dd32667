"""
Where a consumer stands, kept in a file that is never half written.

Its text is the cursor and nothing else, not even a line ending: oplogc reads and writes such
files too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tidings.client import private_files
from tidings.client.errors import WrongState

SAVE_EVERY_S = 1.0  # fsync takes milliseconds; a kill repeats at most this much
EVERYTHING = "0"
NOW = "now"
_CURSOR = re.compile(r"[0-9]{0,13}|[0-9a-f]{24}", re.ASCII)
_TEXT_BYTES_MAX = 1024  # a cursor is far shorter; anything longer is another kind of file


class StateFile:
    """A cursor in *path*; written through a temporary file beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved = ""

    def load(self) -> str | None:
        """
        The cursor in the file; None when there is no file or nothing in it.

        Blanks around it and upper-case digits do not matter: it may have been written by hand.

        Raises:
            WrongState: it cannot be read, or holds something else.
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
        """
        Write *cursor* now, unless it is there already.

        Raises:
            WrongState: the file cannot be written, or this is no cursor to come back with.
        """
        if cursor == self._saved:
            return
        if not _CURSOR.fullmatch(cursor):
            raise WrongState(f"the feed sent {cursor!r}, which is no cursor")
        try:
            self._write(cursor.encode())
        except OSError as error:
            raise WrongState(f"cannot write {self._path}: {error.strerror}") from None
        self._saved = cursor

    def _write(self, content: bytes) -> None:
        """Content first, then the name, then the folder: a crash leaves the old or the new."""
        path = self._path.resolve()  # a link stays a link
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(temporary, "wb", opener=private_files.opener) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def start(state: StateFile | None, cursor: str | None, *, allow_replication: bool) -> str:
    """
    Where to begin: where *state* left off, else at *cursor*, else at the end of the log.

    With *allow_replication*, a state that was never written begins with a copy of everything.
    Without a state there is no telling the first start from a later one: no copy then.

    Raises:
        WrongState: the file cannot be read or written, or holds something else.
    """
    if state is None:
        return cursor or NOW
    begun = state.load() or cursor
    if begun is None and allow_replication:
        state.save(EVERYTHING)  # so that the copy goes on, however soon this start ends
        return EVERYTHING
    return begun or NOW
