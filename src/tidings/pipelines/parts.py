"""Write numbered files to a folder or an S3 prefix, each completely or not at all."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Protocol

from tidings.pipelines.errors import Overtaken

S3 = "s3://"


class Parts(Protocol):
    """Files `part-0000000001...` and so on, without a gap."""

    def open(self) -> int:
        """Return the number of the last file; 0 if the folder is empty."""

    def read(self, number: int) -> io.BytesIO: ...

    def put(self, number: int, body: bytes) -> None:
        """
        Write the file with this number.

        Raises:
            Overtaken: a file with this number exists.
        """


class OnDisk:
    """Files in a folder. Implements `Parts`."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder, self._suffix = folder, suffix

    def open(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        names = [path.name for path in self._folder.glob(f"part-*{self._suffix}")]
        return _number(max(names)) if names else 0

    def read(self, number: int) -> io.BytesIO:
        return io.BytesIO((self._folder / name_of(number, self._suffix)).read_bytes())

    def put(self, number: int, body: bytes) -> None:
        name = name_of(number, self._suffix)
        written = self._folder / f".{name}.{os.getpid()}"
        with written.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(written, self._folder / name)
        except FileExistsError:
            raise Overtaken(f"another worker has written {name}") from None
        finally:
            written.unlink()

    def __str__(self) -> str:
        return str(self._folder)


def name_of(number: int, suffix: str) -> str:
    return f"part-{number:010d}{suffix}"


def _number(name: str) -> int:
    return int(name.partition(".")[0].removeprefix("part-"))
