"""Where a consumer stands, kept in a file that is never half written. Its text is the cursor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tidings.core import cursors
from tidings.core.errors import InvalidCursor

from .errors import WrongState

SAVE_EVERY_S = 1.0  # fsync takes milliseconds; a kill repeats at most this much
_TEXT_BYTES_MAX = 1024  # a cursor is far shorter; anything longer is another kind of file


class StateFile:
    """A cursor in *path*; written through a temporary file beside it."""

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._saved = ""
        self._noted = ""
        self._saved_s = -SAVE_EVERY_S

    def load(self) -> str | None:
        """
        The cursor in the file; None when there is no file or nothing in it.

        Raises:
            WrongState: it cannot be read, or holds something else.
        """
        try:
            with self._path.open("rb") as file:
                text = file.read(_TEXT_BYTES_MAX).decode("utf-8", "replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise WrongState(f"cannot read {self._path}: {error.strerror}") from None
        try:
            cursors.parse(text)
        except InvalidCursor:
            raise WrongState(f"{self._path} does not hold a cursor") from None
        self._saved = self._noted = text
        return text or None

    def note(self, cursor: str) -> None:
        """
        Everything up to *cursor* is handled; written at most once a second.

        Raises:
            WrongState: the file cannot be written.
        """
        self._noted = cursor
        if self._monotonic() - self._saved_s >= SAVE_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """
        Write what was noted last, unless it is there already.

        Raises:
            WrongState: the file cannot be written.
        """
        if self._noted == self._saved:
            return
        try:
            self._write(f"{self._noted}\n".encode())
        except OSError as error:
            raise WrongState(f"cannot write {self._path}: {error.strerror}") from None
        self._saved, self._saved_s = self._noted, self._monotonic()

    def _write(self, content: bytes) -> None:
        """Content first, then the name, then the folder: a crash leaves the old or the new."""
        path = self._path.resolve()  # a link stays a link
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
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
