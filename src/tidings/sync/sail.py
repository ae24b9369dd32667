"""Run plans of PySpark with Sail in this process. Sail needs no Java and starts within a second.

Sail has no observations, no RDDs, no position of a line in its file, and no lookahead in patterns.
Python functions in the same process replace these features.
"""

from __future__ import annotations

import codecs
import ctypes
import gc
import gzip
import os
import re
import socket
import stat
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any, cast

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidings.sync.engine import BOOL, GZIP, LINES, TEXT, error_text

# If this variable is set, PySpark's functions create columns for sessions of Spark Connect.
_CONNECT = "SPARK_CONNECT_MODE_ENABLED"
_SETTINGS = {
    # Do not use huge pages: clearing them took 10 % of the CPU, and they used 100 MB of memory.
    "MIMALLOC_ALLOW_THP": "0",
    "RUST_LOG": "off",  # errors are raised, so they need not be written to stderr
    # The longest idle time of a session, for example while it waits for the state.
    "SAIL_SPARK__SESSION_TIMEOUT_SECS": "86400",
}
# An idle connection must not be closed, because the server accepts no other (`_close_to_others`).
_CHANNEL = [("grpc.client_idle_timeout_ms", 2**31 - 1)]
_READ_BYTES = 4_000_000
_LINE_BYTES_MAX = 32_000_000  # Sail cannot transfer 201 MB; an object has at most 64 KB
_BATCH_ROWS = 8_192  # Sail's default
# New objects between two garbage collections. Few collections are enough, because rows never form
# cycles.
_GARBAGE = 100_000
# On Linux: the socket option that attaches a packet filter, and the filter's instruction `return
# N`, which keeps N bytes of a packet.
_SO_ATTACH_FILTER, _RETURN = 26, 6
# Matches one part of a pattern: an escape, a set, a parenthesis with its quantifier, or another
# character.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(|\)(?:[*+?]|\{\d*,?\d*\})?\+?|.", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")
# Elements of Java's pattern syntax, and the same elements in Python's syntax.
_PYTHON = {r"\z": r"\Z", r"\x{fffd}": "\ufffd"}


@contextmanager
def session() -> Iterator[SparkSession]:
    """Open a session on all cores. Until it ends, PySpark's functions create columns for it."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)  # noqa: TID251 Sail reads these variables
    from pysail.spark import SparkConnectServer  # type: ignore[import-untyped]
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession as Session

    server, threshold = SparkConnectServer(), gc.get_threshold()
    server.start()
    try:
        host, port = server.listening_address
        channel = DefaultChannelBuilder(f"sc://{host}:{port}", _CHANNEL)
        started = Session.builder.channelBuilder(channel).create()
        started.conf.set("spark.sql.session.timeZone", "UTC")  # also opens the connection
        _close_to_others(host, port)
        os.environ[_CONNECT] = "1"  # noqa: TID251 PySpark has no other option
        gc.freeze()  # garbage collections then ignore the objects that were imported
        gc.set_threshold(_GARBAGE)
        try:
            yield cast("SparkSession", started)
        finally:
            gc.set_threshold(*threshold)
            gc.unfreeze()
            del os.environ[_CONNECT]  # noqa: TID251 see above
            started.stop()
    finally:
        server.stop()


def _close_to_others(host: str, port: int) -> None:
    """Make the server reject all connections except the existing one; do nothing except on Linux.

    This is necessary because the server has no password, and runs any Python code that it receives.
    """
    if sys.platform != "linux":
        return
    nothing = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, 0))
    filters = struct.pack("HP", 1, ctypes.addressof(nothing))
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # one number is that of /proc/self/fd itself, which is now closed
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            with socket.socket(fileno=os.dup(number)) as each:
                listens = each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and each.getsockname() == (host, port):
                    each.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filters)


@dataclass(slots=True)
class _Reading:
    """The progress of the reads in Python.

    *done* and *total* count bytes of files in `Sail.text`, and in `Sail.rows` the numbers that are
    passed to *read*. The only instance is a global of this module. A function is sent to Sail as a
    copy, but it refers to a global by its name. So all copies update the same instance.
    """

    done: int = 0
    total: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)  # tasks read in parallel

    def begin(self, total: int) -> None:
        with self._lock:
            self.done, self.total = 0, total

    def advance(self, count: int) -> None:
        with self._lock:
            self.done += count


_reading = _Reading()


class Sail:
    """Implements `Engine`."""

    def text(self, spark: SparkSession, paths: list[str]) -> DataFrame:
        names = [_ESCAPED.sub(r"\1", path) for path in paths]

        def read(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from _all_batches(names)

        return spark.range(0, 1, 1, 1).mapInArrow(read, LINES)

    def replace(self, pattern: str, replacement: str) -> Column:
        match = _compile(pattern).match
        made = re.sub(r"\$(\d)", r"{\1}", replacement).format

        def replace(values: pa.Array) -> pa.Array:
            found = (value and match(value) for value in values.to_pylist())
            return pa.array(
                [made(None, *each.groups()) if each else "" for each in found], pa.string()
            )

        return F.arrow_udf(replace, TEXT)("value")  # type: ignore[no-any-return, attr-defined]

    def like(self, pattern: str) -> Column:
        search = _compile(pattern).search

        def is_like(values: pa.Array) -> pa.Array:
            return pa.array(
                [bool(value and search(value)) for value in values.to_pylist()], pa.bool_()
            )

        return F.arrow_udf(is_like, BOOL)("value")  # type: ignore[no-any-return, attr-defined]

    def rows(
        self,
        spark: SparkSession,
        numbers: int,
        read: Callable[[Iterable[int]], Iterator[tuple[Any, ...]]],
        schema: StructType,
    ) -> DataFrame:
        arrow = to_arrow_schema(schema)

        def batches(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = read(_count(parts))
            while batch := list(islice(rows, _BATCH_ROWS)):
                columns = zip(*batch, strict=True)
                arrays = [
                    pa.array(each, kind) for each, kind in zip(columns, arrow.types, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=arrow)

        _reading.begin(numbers)
        return spark.range(0, numbers, 1, self.cores(spark)).mapInArrow(batches, schema)

    def observe(
        self, table: DataFrame, *counts: Column
    ) -> tuple[DataFrame, Callable[[DataFrame], dict[str, Any]]]:
        return table, lambda again: again.agg(*counts).collect()[0].asDict()

    def cores(self, spark: SparkSession) -> int:
        return os.cpu_count() or 1

    def progress(self, spark: SparkSession) -> tuple[int, int] | None:
        """Return the progress of the reads in Python, because Sail reports no progress."""
        done, total = _reading.done, _reading.total
        return (done, total) if done < total else None


def _compile(pattern: str) -> re.Pattern[str]:
    for java, python in _PYTHON.items():
        pattern = pattern.replace(java, python)
    return re.compile(_atomic(pattern), re.ASCII)


def _atomic(pattern: str) -> str:
    """Return *pattern* with each possessive group `(...)*+` as the atomic group `(?>(...)*)`.

    Both forms have the same meaning. The patterns are written in the possessive form for Java,
    which recurses for each repetition in an atomic group. Python 3.11.2 of Debian 12 has a bug in
    the possessive form: it keeps a part of a repetition that fails.
    """
    parts, opened = list[str](), list[int]()
    for token in _TOKEN.findall(pattern):
        if token.startswith("("):
            opened.append(len(parts))
        elif token.startswith(")"):
            begin = opened.pop()
            if len(token) > 2 and token.endswith("+"):
                parts[begin:] = ["(?>", *parts[begin:], token[:-1]]
                token = ")"
        parts.append(token)
    return "".join(parts)


def _count(parts: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """Yield the numbers in *parts*. A number counts as done when the next number is requested."""
    for part in parts:
        for number in part.column(0).to_pylist():
            yield number
            _reading.advance(1)


def _all_batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    _reading.begin(sum(os.path.getsize(name) for name in names if os.path.exists(name)))
    for name in names:
        yield from _batches(name)


def _batches(name: str) -> Iterator[pa.RecordBatch]:
    """Yield the lines of one file in the format of `Engine.text`."""
    numbers, schema = count(), to_arrow_schema(LINES)
    for lines in _lines(name):
        text = pa.array(lines, pa.binary())
        try:
            value = text.cast(pa.string())
        except pa.ArrowInvalid:
            value = pa.array(map(_decode, lines), pa.string())
        place = [[name] * len(lines), [0] * len(lines), list(islice(numbers, len(lines)))]
        yield pa.RecordBatch.from_arrays([*map(pa.array, place), value, text], schema=schema)


def _lines(name: str) -> Iterator[list[bytes]]:
    """Yield lists of lines, a few megabytes each. Raise an error with the text of `error_text`."""
    rest, at, number = b"", 0, 1
    try:
        with Path(name).open("rb") as raw:
            file = gzip.GzipFile(fileobj=raw) if name.endswith(GZIP) else raw
            text = file.read(_READ_BYTES).removeprefix(codecs.BOM_UTF8)
            while text:
                *lines, rest = (rest + text).split(b"\n")
                if len(lines[0] if lines else rest) > _LINE_BYTES_MAX:
                    rule = f"must have at most {_LINE_BYTES_MAX:,} bytes; write an object per line"
                    raise OSError(f"line {number} {rule}")
                number += len(lines)
                if lines:
                    yield lines
                _reading.advance(raw.tell() - at)
                at = raw.tell()
                text = file.read(_READ_BYTES)
    except (EOFError, OSError, zlib.error) as error:
        raise OSError(error_text(name, error)) from None
    if rest:
        yield [rest]


def _decode(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
