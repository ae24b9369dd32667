"""Post operations so that each batch is appended once, however often it is sent."""

from __future__ import annotations

import hashlib
import json
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

from tidings.client.errors import Lost, Refused, WrongAnswer
from tidings.client.feed_api import NDJSON, FeedApi
from tidings.client.retries import ATTEMPTS_MAX, Closing, error_of_answer, log_lost, repeat
from tidings.core.model.operations import to_ascii_json

LINE_OF_BODY = re.compile(r"^line (\d+):? ?")  # how an error names an operation of the request
_TOO_LARGE = 413
BATCH_LINES_MAX = 500  # a request may hold 1,000 operations; 500 are answered within a second
BATCH_BYTES_MAX = 900_000  # a request may hold 1,048,576 bytes
LINE_BYTES_MAX = 512 * 1024  # an operation has up to 64 KB; JSON escapes may take six times that
LINGER_S = 0.2  # after this pause of the input, a batch is posted although it is not full
_QUEUE_LINES_MAX = 2 * BATCH_LINES_MAX  # one batch is read while another is posted


class Poster(Closing):
    """A connection to post to one feed, kept open between batches. Close it, or use `with`.

    *on_retry* is called with each failure and the seconds until the next attempt; the default logs
    a warning. *timeout_s* is the maximum time of a batch with all attempts; without it, only
    *attempts_max* limits them.
    """

    def __init__(
        self,
        url: str,
        feed: str = "main",
        *,
        password: str = "",
        timeout_s: float | None = None,
        attempts_max: int = ATTEMPTS_MAX,
        on_retry: Callable[[Lost, float], None] = log_lost,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._api = FeedApi(url, feed, password=password, timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._attempts_max = attempts_max
        self._on_retry = on_retry
        self._wait = wait

    def close(self) -> None:
        self._api.close()

    def post(self, operations: Iterable[Mapping[str, Any]], *, key: str = "") -> list[str]:
        """Append *operations* and return their event ids; see `post_lines`."""
        return self.post_lines([encode(operation) for operation in operations], key=key)

    def post_lines(self, lines: Sequence[bytes], *, key: str = "") -> list[str]:
        """Append *lines*, one operation in JSON each, and return their event ids.

        The operations become one page, or consecutive pages if they do not fit into a request or a
        page. A request is repeated until it is answered, always with the same Idempotency-Key
        (*key*, or a random key), so that its operations are appended once. If *key* was already
        used within the last day, nothing is appended.

        Raises:
            AccessDenied: the password is wrong; nothing was appended.
            Refused: the operations or the feed are wrong; nothing was appended. If the lines were
                split because of their size, the lines before the refused lines may be appended.
            Lost: no attempt was answered; the lines may or may not be appended.
        """
        key = key or secrets.token_hex(16)
        try:
            return repeat(
                lambda: self._send(lines, key),
                attempts_max=self._attempts_max,
                within_s=self._timeout_s,
                on_lost=self._on_retry,
                wait=self._wait,
            )
        except Refused as error:
            # Split the request if it is too large for the feed or for a proxy. Splitting does not
            # help if the error is about one line.
            if error.status != _TOO_LARGE or len(lines) < 2 or LINE_OF_BODY.match(error.message):
                raise
        middle = len(lines) // 2
        ids = self.post_lines(lines[:middle], key=_part_key(key, 1))
        try:
            return ids + self.post_lines(lines[middle:], key=_part_key(key, 2))
        except Refused as error:
            raise _shift(error, middle) from None

    def _send(self, lines: Sequence[bytes], key: str) -> list[str]:
        headers = {
            "Content-Type": NDJSON,
            "Idempotency-Key": key,
            "Prefer": "return=representation",
        }
        answer = self._api.request("POST", "ops", content=b"\n".join(lines), headers=headers)
        if answer.status_code == 204:
            return []
        if answer.status_code != 200:
            raise error_of_answer(answer)
        try:
            return [str(event_id) for event_id in json.loads(answer.content)["ids"]]
        except (ValueError, KeyError, TypeError):
            raise WrongAnswer from None  # a proxy may have answered with status 200


def encode(operation: Mapping[str, Any]) -> bytes:
    """Return one operation as a line of JSON, in ASCII so that any text can be sent."""
    return to_ascii_json(operation).encode()


def _part_key(key: str, part: int) -> str:
    """Return the key of a part, which is the same if the request with *key* is repeated."""
    return hashlib.sha256(f"{key}/{part}".encode()).hexdigest()[:32]


def _shift(error: Refused, lines: int) -> Refused:
    """Return *error* with its line number increased by *lines*."""
    line = LINE_OF_BODY.match(error.message)
    if line is None:
        return error
    message = f"line {int(line[1]) + lines}: {error.message[line.end() :]}"
    return type(error)(message, status=error.status, code=error.code)


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines of the input, with their line *numbers*, from 1, and their size in the input."""

    lines: list[bytes]
    numbers: list[int]
    read_bytes: int


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: bytes


# The lines of the input. The last entry is an error, or None at the end of the input.
_Lines: TypeAlias = "queue.Queue[_Line | OSError | Refused | None]"


def read_batches(file: BinaryIO) -> Iterator[Batch]:
    """Yield the lines of *file* in batches, in order and without blank lines.

    A batch ends if it is full, or if the input pauses.

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
    """Read in a separate thread, because reading from a pipe cannot have a timeout."""
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
