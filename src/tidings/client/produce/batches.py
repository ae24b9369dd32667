"""Split NDJSON lines from a file or a pipe into batches that a feed accepts."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from tidings.client.errors import Refused

BATCH_LINES_MAX = 500  # a request may hold 1,000 operations; 500 are answered within a second
BATCH_BYTES_MAX = 900_000  # a request may hold 1,048,576 bytes
LINE_BYTES_MAX = 512 * 1024  # an operation holds 64 KB; JSON escapes may take six times that
LINGER_S = 0.2  # delay until the lines of a slow producer are posted
_QUEUE_LINES_MAX = 2 * BATCH_LINES_MAX  # one batch is read while another is posted


@dataclass(frozen=True, slots=True)
class Batch:
    """
    Lines of the input. *numbers* are their line numbers from 1; *read_bytes* is their size in it.
    """

    lines: list[bytes]
    numbers: list[int]
    read_bytes: int


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: bytes


# An error or None is the last entry; None is the end of the input.
_Lines: TypeAlias = "queue.Queue[_Line | OSError | Refused | None]"


def read(file: BinaryIO) -> Iterator[Batch]:
    """
    Yield the lines of *file* in order, without blank ones.

    A batch is full, or it ends at a pause of the input.

    Raises:
        Refused: a line is longer than any operation.
        OSError: *file* cannot be read any further.
    """
    lines: _Lines = queue.Queue(_QUEUE_LINES_MAX)
    threading.Thread(target=_pump, args=(file, lines), daemon=True).start()
    collected: list[_Line] = []
    while True:
        try:
            line = lines.get(timeout=LINGER_S if collected else None)
        except queue.Empty:
            yield _batch(collected)
            collected = []
            continue
        if collected and (not isinstance(line, _Line) or not _fits(collected, line)):
            yield _batch(collected)
            collected = []
        if line is None:
            return
        if not isinstance(line, _Line):
            raise line
        collected.append(line)


def _pump(file: BinaryIO, lines: _Lines) -> None:
    """Read in a separate thread: reading from a pipe cannot have a timeout."""
    try:
        for number, text in enumerate(iter(lambda: file.readline(LINE_BYTES_MAX + 2), b""), 1):
            if len(text.rstrip()) > LINE_BYTES_MAX:
                raise Refused(f"line {number} is longer than {LINE_BYTES_MAX} bytes")
            lines.put(_Line(number, text))
    except (OSError, Refused) as error:
        lines.put(error)
    else:
        lines.put(None)


def _fits(collected: list[_Line], line: _Line) -> bool:
    if len(collected) == BATCH_LINES_MAX:
        return False
    size = sum(len(other.text) for other in collected) + len(line.text)
    return size <= BATCH_BYTES_MAX


def _batch(collected: list[_Line]) -> Batch:
    kept = [line for line in collected if line.text.strip()]
    return Batch(
        lines=[line.text.strip() for line in kept],
        numbers=[line.number for line in kept],
        read_bytes=sum(len(line.text) for line in collected),
    )
