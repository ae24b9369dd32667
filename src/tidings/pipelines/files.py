"""Write files of JSON lines; read such files, which may be gzipped, and DataFrames of Spark."""

from __future__ import annotations

import gzip
import io
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from glob import glob
from io import BufferedReader, FileIO
from itertools import islice
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

from tidings.http.outbound.files import publish
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.documents import Documents, parse_json, to_text
from tidings.pipelines.ingest_source import BATCH, COMPLETE, COPY, Batch, Known, ReaderState
from tidings.pipelines.messages import Message, Overtaken, WrongPipeline
from tidings.pipelines.row_rules import STOP, SizeRule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


S3 = "s3://"
SOME = 1000  # the size of one page of a listing on S3


class Parts(Protocol):
    """Numbered files, `part-0000000001...` and so on, without a gap."""

    def open(self, *, create: bool = True) -> int:
        """Open the folder, and return the number of the last file, or 0 if the folder is empty."""

    def others(self) -> int:
        """Return the number of files with the suffix that have other names, up to `SOME`."""

    def read(self, number: int) -> io.BytesIO: ...

    def put(self, number: int, body: bytes) -> None:
        """Write the file with this number.

        Raises:
            Overtaken: a file with this number exists.
        """


class OnDisk:
    """Files in a folder. Implements `Parts`."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder, self._suffix = folder, suffix

    def open(self, *, create: bool = True) -> int:
        if create:
            self._folder.mkdir(parents=True, exist_ok=True)
        found = self._folder.glob(f"part-*{self._suffix}")
        names = [path.name for path in found if is_part(path.name)]
        return int(max(names).partition(".")[0].removeprefix("part-")) if names else 0

    def others(self) -> int:
        names = (path.name for path in self._folder.glob(f"*{self._suffix}"))
        return len(list(islice((name for name in names if not is_part(name)), SOME)))

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
            publish(written, self._folder / name)
        except FileExistsError:
            raise Overtaken(f"another worker has written {name}") from None
        finally:
            written.unlink(missing_ok=True)

    def __str__(self) -> str:
        return str(self._folder)


def name_of(number: int, suffix: str) -> str:
    return f"part-{number:010d}{suffix}"


def is_part(name: str) -> bool:
    return re.match(r"part-\d{10}\.", name) is not None


class Ndjson:
    """A sink that appends one line of JSON for each message to *path*.

    A line has the fields `op`, `namespace`, `ts`, `id` and `data`. A batch is synced to disk before
    it is acknowledged. A few lines may occur twice, with the same `id`. A line with the op
    `command` means that a copy of all objects follows.
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
        """End a partial line that a killed writer left, so the next message begins a line."""
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
    return to_text(fields, ensure_ascii=False)


LOOK_S = 0.5  # the time between two checks of followed files
BLOCK = 4096  # the bytes at the beginning and before the position that identify a growing file
CHUNK = 1 << 20  # the bytes of one read while a whole file is compared
KEPT_MAX = 100  # followed files that stay open, below the usual limit of 1,024 for a process
_NEWLINE = b"\n"
_log = logging.getLogger(__name__)
File = gzip.GzipFile | BufferedReader


class Files:
    """A source of the lines of all files that match *patterns*, in the order of their names.

    Reading resumes at the last position in each file. A file that no longer begins with the lines
    that were read is another one, and is read from its beginning. A line is an operation in the
    form in which operations are posted. If *type* is given, a line is instead an object of *type*,
    with the field *key* as its id. If *follow*, new lines and new files are read continuously, and
    the rest of a file that was renamed or copied within its folder is read before the file that
    replaced it.

    Raises:
        WrongPipeline: no pattern is given.
    """

    def __init__(
        self,
        *patterns: str | Path,
        type: str = "",
        key: str = "id",
        follow: bool = False,
        too_large: str = STOP,
    ) -> None:
        if not patterns:
            raise WrongPipeline("Files must be given at least one name or pattern")
        self._patterns, self._follow = [str(each) for each in patterns], follow
        self.refit = SizeRule(", ".join(self._patterns), (key,), too_large).refit
        self._documents = Documents(type, key)
        self._state: dict[str, dict[str, Any]] = {}
        # Open files, which can be read after their removal.
        self._kept: dict[str, BufferedReader] = {}
        self._lost: set[str] = set()

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        self._state, self._lost = {path: dict(each) for path, each in state.items()}, set()

    def read(self) -> Iterator[Batch]:
        """Yield batches of operations.

        Raises:
            WrongPipeline: no file matches, or a line cannot be read.
        """
        while True:
            if self._follow:
                self._find_renamed()
            paths = sorted({path for each in self._patterns for path in glob(each, recursive=True)})
            if not paths and not self._follow:
                raise WrongPipeline(f"no file matches {', '.join(self._patterns)}")
            named = paths
            for path in self._rotated():
                yield from self._file(path, is_named=path in named)
            for path in named:
                yield from self._file(path)
            if not self._follow:
                return
            yield Batch()
            sleep(LOOK_S)

    def close(self) -> None:
        while self._kept:
            self._kept.popitem()[1].close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [datasets.of_files(each) for each in self._patterns]

    def __str__(self) -> str:
        return f"files {', '.join(self._patterns)}"

    def _rotated(self) -> list[str]:
        """Return the files that were renamed, copied or removed, the oldest change first."""
        found = [
            each for each in self._state if each in self._kept or "rotated" in self._state[each]
        ]
        return sorted(found, key=lambda each: self._state[each]["file"][-1]) if self._follow else []

    def _find_renamed(self) -> None:
        """Give the position of each file that was renamed within its folder to its new name."""
        lost = {path for path, at in self._state.items() if "file" in at and not _is_at(path, at)}
        if lost == self._lost:
            return
        self._lost, moved, kept = lost, dict[str, dict[str, Any]](), dict[str, BufferedReader]()
        names = {entry.inode(): entry.path for path in lost for entry in _siblings(path)}
        for path in lost:
            at = self._state[path]
            name = names.get(at["file"][0])
            if name and (name in lost or name not in self._state) and _begins(name, at):
                moved[name] = {**self._state.pop(path), "rotated": True}
                if path in self._kept:
                    kept[name] = self._kept.pop(path)
        self._state |= moved
        self._kept |= kept

    def _file(self, path: str, *, is_named: bool = True) -> Iterator[Batch]:
        """Yield the new lines of one file. If not *is_named*, only the rest of a known file."""
        at, stat, kept = self._state.get(path, {}), _stat(path), self._kept.get(path)
        if stat and at.get("mode") == COMPLETE and at.get("file") == _signature(stat):
            return
        file = _open(path) if stat else None
        is_moved = kept is not None and not (
            file and os.path.sameopenfile(file.fileno(), kept.fileno())
        )
        if kept and is_moved:
            yield from self._rest(kept, path)
        if file is not None:
            self._keep(path, file)
            yield from self._next(file, path, is_read=is_moved, is_named=is_named)
            if path not in self._kept:
                file.close()
        elif not kept and "rotated" in at:
            del self._state[path]

    def _next(self, file: File, path: str, *, is_read: bool, is_named: bool) -> Iterator[Batch]:
        """Yield the new lines of *file*, which is at *path* now.

        If it is another file than before, yield all lines, after the rest of the file before. That
        one was read to its end if *is_read*.
        """
        at = self._state.get(path, {})
        if not _continues(file, at, is_complete=not self._follow):
            del self._state[path]
            if self._follow:
                yield from self._replaced(path, at, is_read=is_read)
            if not is_named:
                return
        yield from self._rest(file, path)

    def _keep(self, path: str, file: File | None) -> None:
        """Close the open file of *path*, and keep *file* open instead if it is followed."""
        if before := self._kept.pop(path, None):
            before.close()
        if self._follow and isinstance(file, BufferedReader):
            self._kept[path] = file
        if len(self._kept) > KEPT_MAX:
            self._keep(next(iter(self._kept)), None)

    def _replaced(self, path: str, at: dict[str, Any], *, is_read: bool) -> Iterator[Batch]:
        """Yield the rest of the file that was at *path*, if the folder has a copy of it."""
        for name in sorted(entry.path for entry in _siblings(path)):
            if at["at"] and name not in self._state and _begins(name, at):
                self._state[name] = {**at, "rotated": True}
                yield from self._file(name, is_named=False)
                return
        if not is_read:
            rule = "was replaced, and its folder has no copy of it; later lines may be missing"
            _log.warning("%s, line %d: the file %s", path, at["lines"], rule)

    def _rest(self, file: File, path: str) -> Iterator[Batch]:
        """Yield the lines of *file* after the position of *path*.

        In the state of the file, `at` counts decompressed bytes, `file` has the inode, the size and
        the time of the last change, and `sums` has the checksums of the first and the last `BLOCK`
        bytes before the position, and of all.
        """
        stat, at = os.fstat(file.fileno()), self._state.get(path, {})
        line, offset = at.get("lines", 0), at.get("at", 0)
        head, _, total = at.get("sums", (0, 0, 0))
        file.seek(max(0, offset - BLOCK))
        block = file.read(min(BLOCK, offset))
        while True:
            operations, count, data = self._lines(file, path, line)
            block += data
            head = crc32(block[:BLOCK]) if offset < BLOCK else head
            line, offset, total = line + count, offset + len(data), crc32(data, total)
            block = block[-BLOCK:]
            mode = COPY if count == BATCH else COMPLETE
            rotated = {"rotated": True} if "rotated" in at else {}
            fields = {"mode": mode, "at": offset, "lines": line, "file": _signature(stat)}
            self._state[path] = {**fields, "sums": [head, crc32(block), total], **rotated}
            if data or len(at.get("file", ())) < 3:  # new, or of an earlier release
                yield Batch(operations, self._state)
            if mode == COMPLETE:
                return

    def _lines(
        self, file: Iterable[bytes], path: str, line: int
    ) -> tuple[list[dict[str, Any]], int, bytes]:
        """Return the operations of up to `BATCH` lines after *line*.

        Also return the number of lines, and the bytes that were read.
        """
        operations: list[dict[str, Any]] = []
        texts: list[bytes] = []
        for text in file:
            if self._follow and not text.endswith(_NEWLINE):
                break  # the writer has not finished this line
            texts.append(text)
            if text.strip():
                operations.append(self._documents.operation(_parse(text, path, line + len(texts))))
            if len(texts) == BATCH:
                break
        return operations, len(texts), b"".join(texts)


def _stat(path: str) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        return os.stat(path)
    return None


def _signature(stat: os.stat_result) -> list[int]:
    """Return what changes with the contents. The device is left out; a reboot may renumber it."""
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns]


def _is_at(path: str, at: Mapping[str, Any]) -> bool:
    stat, inode = _stat(path), int(at["file"][0])
    return stat is not None and stat.st_ino == inode


def _siblings(path: str) -> list[os.DirEntry[str]]:
    """Return the other files in the folder of *path*, or of the file to which it is a link."""
    path = os.path.realpath(path) if os.path.islink(path) else path
    folder = os.path.dirname(path)
    with suppress(FileNotFoundError), os.scandir(folder or ".") as entries:
        found = [each for each in entries if each.is_file() and each.name != os.path.basename(path)]
        return found
    return []


def _begins(path: str, at: Mapping[str, Any]) -> bool:
    """Return True if the file *path* begins with everything before the position *at*."""
    with suppress(OSError, EOFError, zlib.error), _open(path) as file:
        sums: list[int] = at["sums"]
        return _sums(file, at["at"], whole=False) == sums[:2] and _sums(file, at["at"]) == sums
    return False


def _continues(file: File, at: dict[str, Any], *, is_complete: bool) -> bool:
    """Return True if *file* begins with the bytes that were read before the position *at*.

    The whole beginning is compared if the inode is another one, or if *is_complete*. A position of
    an earlier release gets its identity here; then only the size counts.
    """
    stat = os.fstat(file.fileno())
    if at and "sums" not in at:
        at |= {"sums": _sums(file, at["at"]), "file": [stat.st_ino]}
        return stat.st_size >= int(at["size"])
    if not at:
        return True
    whole = is_complete or at["file"][0] != stat.st_ino or isinstance(file, gzip.GzipFile)
    sums: list[int] = at["sums"][: 3 if whole else 2]
    return _sums(file, at["at"], whole=whole) == sums


def _sums(file: File, at: int, *, whole: bool = True) -> list[int]:
    """Return the checksums of the first and the last `BLOCK` bytes before *at*.

    If *whole*, also return that of all bytes before *at*, or [] if the file is shorter.
    """
    size = min(BLOCK, at)
    file.seek(0)
    block = file.read(size)
    head = total = crc32(block)
    if not whole:
        file.seek(at - size)
        return [head, crc32(file.read(size))]
    left = at - len(block)
    while chunk := file.read(min(left, CHUNK)):
        left, total, block = left - len(chunk), crc32(chunk, total), (block + chunk)[-size:]
    return [] if left else [head, crc32(block), total]


def _open(path: str) -> File:
    return gzip.open(path) if path.endswith(".gz") else Path(path).open("rb")


def _parse(text: bytes, path: str, line: int) -> dict[str, Any]:
    try:
        document = parse_json(text)
    except ValueError as error:
        raise WrongPipeline(f"{path}, line {line}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise WrongPipeline(f"{path}, line {line}: must be a JSON object")
    return document


class Frame:
    """A source of the rows of a DataFrame as objects of *type*, with the column *key* as id.

    *make* creates the DataFrame from a session of Spark. Rows have no defined order, so an
    interrupted read starts again from the beginning. A complete read is not repeated.
    """

    def __init__(
        self,
        make: Callable[[SparkSession], DataFrame],
        type: str,
        key: str,
        *,
        too_large: str = STOP,
    ) -> None:
        self._make, self._documents = make, Documents(type, key)
        self.refit = SizeRule(type, (key,), too_large).refit
        self._complete = False

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        self._complete = state.get(self._documents.type, {}).get("mode") == COMPLETE

    def read(self) -> Iterator[Batch]:
        if self._complete:
            return
        from pyspark.sql import SparkSession

        namespace = self._documents.type
        spark = SparkSession.builder.appName("tidings").getOrCreate()
        rows = self._make(spark).toLocalIterator(prefetchPartitions=True)
        documents = (self._documents.operation(row.asDict(recursive=True)) for row in rows)
        while operations := list(islice(documents, BATCH)):
            yield Batch(operations, {namespace: {"mode": COPY}})
        yield Batch([], {namespace: {"mode": COMPLETE}})

    def close(self) -> None:
        return

    def __str__(self) -> str:
        return f"{self._documents.type} by {getattr(self._make, '__name__', 'Spark')}"
