"""Write messages as lines of a file."""

from __future__ import annotations

import json
import os
from io import FileIO
from pathlib import Path

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.message import Message


class Ndjson:
    """
    A sink that appends one line of JSON for each message to *path*.

    A line has `op`, `namespace`, `ts`, `id` and `data`. A batch is synced to disk before it is
    acknowledged. A few lines may occur twice, with the same `id`. A line with the op `command`
    means that a copy of all objects follows.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._file: FileIO | None = None

    def open(self, consumer: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = FileIO(self._path, "a+")
        self._end_cut_line()

    def write(self, messages: list[Message], fence: int) -> None:
        assert self._file is not None
        lines = "".join(f"{line_of(message)}\n" for message in messages)
        text = memoryview(lines.encode())
        while text:
            text = text[self._file.write(text) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [datasets.of_files(str(self._path))]

    def __str__(self) -> str:
        return f"lines in {self._path}"

    def _end_cut_line(self) -> None:
        """
        End a partial line that a killed writer left, so that the next message has its own line.
        """
        assert self._file is not None
        size = self._file.seek(0, os.SEEK_END)
        if size:
            self._file.seek(size - 1)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")


def line_of(message: Message) -> str:
    fields = {
        "op": message.op,
        "namespace": message.namespace,
        "ts": message.ts,
        "id": message.id,
        "data": message.data,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
