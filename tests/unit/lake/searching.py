"""Search all files of tables for a text, also in compressed blocks."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]

_SYNC_BYTES = 16  # the marker after the header and each block of an Avro file


def files_with(folder: Path, *texts: str) -> list[str]:
    """Return the names of the files below *folder* that have one of *texts*."""
    return sorted(
        path.name
        for path in folder.rglob("*")
        if path.is_file() and any(_has(path, text.encode()) for text in texts)
    )


def _has(path: Path, text: bytes) -> bool:
    if any(text in part for part in (path.read_bytes(), path.name.encode())):
        return True
    if path.suffix == ".parquet" and not path.name.startswith("."):
        rows = pq.ParquetFile(path).read().to_pylist()
        return text in json.dumps(rows, default=str, ensure_ascii=False).encode()
    if path.suffix == ".avro" and not path.name.startswith("."):
        return any(text in block for block in _blocks(path.read_bytes()))
    return False


def _blocks(body: bytes) -> Iterator[bytes]:
    """Yield the decompressed blocks of an Avro file with the codec `deflate`."""
    assert b"avro.codec\x0edeflate" in body
    for block in body.split(body[-_SYNC_BYTES:])[1:-1]:
        at = _after_number(block, _after_number(block, 0))
        yield zlib.decompress(block[at:], -zlib.MAX_WBITS)


def _after_number(block: bytes, at: int) -> int:
    while block[at] & 0x80:
        at += 1
    return at + 1
