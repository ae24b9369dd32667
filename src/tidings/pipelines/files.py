"""Write files of JSON lines; read such files, which may be gzipped, and DataFrames of Spark."""

from __future__ import annotations

import gzip
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from glob import glob
from io import BufferedReader, FileIO
from itertools import islice
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol

from tidings.http.outbound.files import publish
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.documents import Documents, parse_json, to_text
from tidings.pipelines.ingest_source import BATCH, COMPLETE, COPY, Batch, Known, ReaderState
from tidings.pipelines.messages import Message, Overtaken, WrongPipeline

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
        """
        Write the file with this number.

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
        return _number(max(names)) if names else 0

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


def _number(name: str) -> int:
    return int(name.partition(".")[0].removeprefix("part-"))


class Ndjson:
    """
    A sink that appends one line of JSON for each message to *path*.

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
        """
        End a partial line that a killed writer left, so that the next message begins a new line.
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
    return to_text(fields, ensure_ascii=False)


LOOK_S = 0.5  # the time between two checks of followed files
_NEWLINE = b"\n"


class Files:
    """
    A source that reads the lines of all files that match *patterns*, in the order of their names.

    Reading resumes at the last position in each file, so a file may only grow. A line is an
    operation in the form in which operations are posted. If *type* is given, a line is instead an
    object of *type*, with the field *key* as its id. If *follow*, new lines and new files are read
    continuously.

    Raises:
        WrongPipeline: no pattern is given.
    """

    def __init__(
        self, *patterns: str | Path, type: str = "", key: str = "id", follow: bool = False
    ) -> None:
        if not patterns:
            raise WrongPipeline("Files must be given at least one name or pattern")
        self._patterns, self._follow = [str(each) for each in patterns], follow
        self._documents = Documents(type, key)
        self._state: dict[str, dict[str, Any]] = {}

    def open(self, name: str, state: ReaderState, known: Known) -> None:
        self._state = {path: dict(each) for path, each in state.items()}

    def read(self) -> Iterator[Batch]:
        """
        Yield batches of operations.

        Raises:
            WrongPipeline: no file matches, a line cannot be read, or a file became shorter.
        """
        while True:
            for path in self._matching_paths():
                yield from self._file(path)
            if not self._follow:
                return
            yield Batch()
            sleep(LOOK_S)

    def close(self) -> None:
        return

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [datasets.of_files(each) for each in self._patterns]

    def __str__(self) -> str:
        return f"files {', '.join(self._patterns)}"

    def _matching_paths(self) -> list[str]:
        paths = sorted({path for each in self._patterns for path in glob(each, recursive=True)})
        if not paths and not self._follow:
            raise WrongPipeline(f"no file matches {', '.join(self._patterns)}")
        return paths

    def _file(self, path: str) -> Iterator[Batch]:
        """
        Yield the new lines of one file.

        In the state of the file, `size` is its size, and `at` counts decompressed bytes.
        """
        at = self._state.get(path, {})
        size = Path(path).stat().st_size
        if at.get("mode") == COMPLETE and at["size"] == size:
            return
        if size < at.get("size", 0):
            raise WrongPipeline(f"{path} is shorter than before; a new file needs a new name")
        line, offset = at.get("lines", 0), at.get("at", 0)
        with _open(path) as file:
            file.seek(offset)
            while True:
                operations, count, length = self._lines(file, path, line)
                line, offset = line + count, offset + length
                mode = COPY if count == BATCH else COMPLETE
                self._state[path] = {"mode": mode, "at": offset, "lines": line, "size": size}
                yield Batch(operations, self._state)
                if mode == COMPLETE:
                    return

    def _lines(
        self, file: Iterable[bytes], path: str, line: int
    ) -> tuple[list[dict[str, Any]], int, int]:
        """
        Return the operations of up to `BATCH` lines after *line*.

        Also return the numbers of lines and bytes that were read.
        """
        operations: list[dict[str, Any]] = []
        count = length = 0
        for text in file:
            if self._follow and not text.endswith(_NEWLINE):
                break  # the writer has not finished this line
            count, length = count + 1, length + len(text)
            if text.strip():
                operations.append(self._documents.operation(_parse(text, path, line + count)))
            if count == BATCH:
                break
        return operations, count, length


def _open(path: str) -> gzip.GzipFile | BufferedReader:
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
    """
    A source that reads the rows of a DataFrame as objects of *type*, with the column *key* as id.

    *make* creates the DataFrame from a session of Spark. Rows have no defined order, so an
    interrupted read starts again from the beginning. A complete read is not repeated.
    """

    def __init__(self, make: Callable[[SparkSession], DataFrame], type: str, key: str) -> None:
        self._make, self._documents = make, Documents(type, key)
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
