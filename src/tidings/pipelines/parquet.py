"""Write messages as Parquet files, one file for each batch."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pyarrow  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.documents import to_text
from tidings.pipelines.files import S3, OnDisk, Parts
from tidings.pipelines.messages import Message
from tidings.pipelines.ownership import OwnedStore, Target

SUFFIX = ".parquet"
_MARK = b"tidings"  # the key of the mark in the metadata of a file
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


class Parquet(OwnedStore):
    """A sink that writes each batch as one file to *folder*.

    Readers see a file completely or not at all. *folder* is a path, or `s3://BUCKET/PREFIX`, which
    also requires the extra `flow-aws`. The column `data` has JSON. Files are numbered in the order
    of the log, and the column `sequence` increases from row to row and from file to file. So the
    latest row of an object has the highest `sequence` of its rows. A row with the op `command`
    means that objects in earlier rows may no longer exist. A few messages may occur twice. The
    metadata of the last file have the mark of the folder (`ownership`), and its number is the
    number of batches. A folder without files was emptied by its user, and numbers continue.

    Raises:
        WrongPipeline: *folder* is an S3 address without a bucket or a prefix.
    """

    def __init__(self, folder: str | Path) -> None:
        self._parts = _parts(folder)
        self._sequence = 0

    def open(self, consumer: str) -> None:
        self._own(consumer)
        self._claim(self.inspect())
        last = self._parts.open()
        if last:
            table = pyarrow.parquet.read_table(self._parts.read(last), columns=["sequence"])
            self._sequence = table["sequence"][-1].as_py() + 1

    def inspect(self) -> Target:
        last, others = self._parts.open(create=False), self._parts.others()
        found = pyarrow.parquet.read_schema(self._parts.read(last)).metadata if last else {}
        return Target(
            str(self),
            (found or {}).get(_MARK, b"").decode(),
            not (last or others),
            self._owner.is_known and not others,
            lambda: last + others,
            last or self._owner.written,
        )

    def write(self, messages: list[Message], fence: int) -> None:
        """Write the messages as the next file.

        Raises:
            Overtaken: another worker has written the next file.
        """
        rows = [_row(message, self._sequence + at) for at, message in enumerate(messages)]
        schema = SCHEMA.with_metadata({_MARK: self._owner.mark})
        table, packed = pyarrow.Table.from_pylist(rows, schema=schema), io.BytesIO()
        pyarrow.parquet.write_table(table, packed, compression="zstd")
        self._parts.put(self.written + 1, packed.getvalue())
        self.written += 1
        self._sequence += len(rows)

    def close(self) -> None:
        return

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        columns = tuple((each.name, str(each.type)) for each in SCHEMA)
        return [replace(datasets.of_files(str(self._parts)), columns=columns)]

    def __str__(self) -> str:
        return f"Parquet files in {self._parts}"


def _parts(folder: str | Path) -> Parts:
    if not str(folder).startswith(S3):
        return OnDisk(Path(folder), SUFFIX)
    from tidings.pipelines.aws import OnS3  # requires an extra, which files on disk do not need

    return OnS3(str(folder), SUFFIX)


def _row(message: Message, sequence: int) -> dict[str, object]:
    return {
        "op": message.op,
        "namespace": message.namespace,
        "key": message.key,
        "ts": message.ts,
        "id": message.id,
        "sequence": sequence,
        "data": to_text(message.data, ensure_ascii=False),
    }
