"""Messages as Parquet files, a file a batch."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
from tidings.pipelines.message import Message

SCHEMA = pyarrow.schema(
    [
        pyarrow.field("op", pyarrow.string(), nullable=False),
        pyarrow.field("namespace", pyarrow.string(), nullable=False),
        pyarrow.field("key", pyarrow.string(), nullable=False),
        pyarrow.field("ts", pyarrow.string(), nullable=False),
        pyarrow.field("id", pyarrow.string(), nullable=False),
        pyarrow.field("sequence", pyarrow.int64(), nullable=False),
        pyarrow.field("data", pyarrow.string(), nullable=False),
    ]
)


class Parquet:
    """
    Writes each batch as one file into *folder*: readers see all of it or nothing.

    `data` is JSON. Files are numbered in the order of the log, and `sequence` goes on from file
    to file: of an object the row with the highest is the latest, and a row with the op `command`
    says that what stands before it is no longer all there is. A few messages may be there twice.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._next = 1
        self._sequence = 0

    def open(self, consumer: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        files = sorted(self._folder.glob("part-*.parquet"))
        if files:
            self._next = int(files[-1].stem.removeprefix("part-")) + 1
            last = pyarrow.parquet.read_table(files[-1], columns=["sequence"])
            self._sequence = last["sequence"][-1].as_py() + 1

    def write(self, messages: list[Message], fence: int) -> None:
        rows = [_row(message, self._sequence + at) for at, message in enumerate(messages)]
        name = f"part-{self._next:010d}.parquet"
        written = self._folder / f".{name}.{os.getpid()}"
        table = pyarrow.Table.from_pylist(rows, schema=SCHEMA)
        pyarrow.parquet.write_table(table, written, compression="zstd")
        with written.open("rb") as file:
            os.fsync(file.fileno())
        os.link(written, self._folder / name)  # fails where another writer was faster
        written.unlink()
        self._next += 1
        self._sequence += len(rows)

    def close(self) -> None:
        return

    def __str__(self) -> str:
        return f"Parquet files in {self._folder}"


def _row(message: Message, sequence: int) -> dict[str, object]:
    return {
        "op": message.op,
        "namespace": message.namespace,
        "key": message.key,
        "ts": message.ts,
        "id": message.id,
        "sequence": sequence,
        "data": json.dumps(message.data, ensure_ascii=False, separators=(",", ":")),
    }
