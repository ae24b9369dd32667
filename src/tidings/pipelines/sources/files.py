"""Read files of JSON lines, plain or gzipped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from glob import glob
from io import BufferedReader
from pathlib import Path
from time import sleep
from typing import Any

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import BATCH, COMPLETE, COPY, Batch, Known, Standing
from tidings.pipelines.sources.documents import Documents

LOOK_S = 0.5  # how often a followed file is checked
_NEWLINE = b"\n"


class Files:
    """
    A source of the lines of the files that match *patterns*, in the order of their names.

    Reading resumes at the last position in each file. A line is an operation as it is posted; with
    *type* it is a document, with *key* as its id. With *follow* the files and new ones are read
    continuously; they must only grow.

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
        self._standing: dict[str, dict[str, Any]] = {}

    def open(self, name: str, standing: Standing, known: Known) -> None:
        self._standing = {path: dict(each) for path, each in standing.items()}

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
        """Yield the new lines of one file; `at` is an offset in bytes, after decompression."""
        at = self._standing.get(path, {})
        size = Path(path).stat().st_size
        if at.get("mode") == COMPLETE and at["size"] == size:
            return
        if size < at.get("size", 0):
            raise WrongPipeline(f"{path} is shorter than it was: give a new file a new name")
        line, offset = at.get("lines", 0), at.get("at", 0)
        with _opened(path) as file:
            file.seek(offset)
            while True:
                operations, count, length = self._lines(file, path, line)
                line, offset = line + count, offset + length
                mode = COPY if count == BATCH else COMPLETE
                self._standing[path] = {"mode": mode, "at": offset, "lines": line, "size": size}
                yield Batch(operations, self._standing)
                if mode == COMPLETE:
                    return

    def _lines(
        self, file: Iterable[bytes], path: str, line: int
    ) -> tuple[list[dict[str, Any]], int, int]:
        """
        Return the operations of up to `BATCH` lines after *line*, and the numbers of lines and
        bytes.
        """
        operations: list[dict[str, Any]] = []
        count = length = 0
        for text in file:
            if self._follow and not text.endswith(_NEWLINE):
                break  # the writer has not finished this line
            count, length = count + 1, length + len(text)
            if text.strip():
                operations.append(self._documents.operation(_parsed(text, path, line + count)))
            if count == BATCH:
                break
        return operations, count, length


def _opened(path: str) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path) if path.endswith(".gz") else Path(path).open("rb")


def _parsed(text: bytes, path: str, line: int) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise WrongPipeline(f"{path}, line {line}: no JSON: {error}") from None
    if not isinstance(document, dict):
        raise WrongPipeline(f"{path}, line {line}: must be a JSON object")
    return document
