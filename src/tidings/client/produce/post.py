"""Post operations so that each batch is appended once, however often it is sent."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidings.client.address import operations_url
from tidings.client.backoff import Backoff
from tidings.client.closing import Closing
from tidings.client.errors import Lost, Refused
from tidings.client.retry_policy import error_of_answer
from tidings.client.transport import connection

LINE_OF_BODY = re.compile(r"^line (\d+):? ?")  # how an error names one operation of a request
_TOO_LARGE = 413
ATTEMPTS_MAX = 8  # about two minutes: longer than a deployment, shorter than a user's patience


class Poster(Closing):
    """
    A connection to post to one feed, kept open between batches. Close it, or use `with`.

    *on_retry* receives each failure and the seconds until the next attempt.
    """

    def __init__(
        self,
        url: str,
        feed: str = "main",
        *,
        password: str = "",
        attempts_max: int = ATTEMPTS_MAX,
        on_retry: Callable[[Lost, float], None] = lambda lost, delay_s: None,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = operations_url(url, feed)
        self._attempts_max = attempts_max
        self._on_retry = on_retry
        self._wait = wait
        self._client = connection.opened(password)

    def close(self) -> None:
        self._client.close()

    def post(self, operations: Iterable[Mapping[str, Any]], *, key: str = "") -> list[str]:
        """Append *operations* and return their event ids; see `post_lines`."""
        return self.post_lines([encode(operation) for operation in operations], key=key)

    def post_lines(self, lines: Sequence[bytes], *, key: str = "") -> list[str]:
        """
        Append *lines*, one operation in JSON each, and return their event ids.

        They become one page, or consecutive pages if they do not fit into a request or a page. A
        request is repeated until it is answered, with the same Idempotency-Key (*key*, or a random
        one), so that it is appended once. A *key* that was used within the last day appends
        nothing.

        Raises:
            AccessDenied: the password is wrong; nothing was appended.
            Refused: the operations or the feed are wrong; nothing was appended. If the lines
                were split because of their size, those before the refused ones may be appended.
            Lost: no answer after all attempts; the lines may be appended or not.
        """
        key = key or secrets.token_hex(16)
        try:
            return self._post_repeatedly(lines, key)
        except Refused as error:
            # A proxy may answer 413 as well. Splitting does not help if one line is wrong.
            if error.status != _TOO_LARGE or len(lines) < 2 or LINE_OF_BODY.match(error.message):
                raise
        middle = len(lines) // 2
        ids = self.post_lines(lines[:middle], key=_part_key(key, 1))
        try:
            return ids + self.post_lines(lines[middle:], key=_part_key(key, 2))
        except Refused as error:
            raise _shifted(error, middle) from None

    def _post_repeatedly(self, lines: Sequence[bytes], key: str) -> list[str]:
        headers = {
            "Content-Type": "application/x-ndjson",
            "Idempotency-Key": key,
            "Prefer": "return=representation",
        }
        body = b"\n".join(lines)
        backoff = Backoff()
        for _ in range(self._attempts_max - 1):
            try:
                return self._send(body, headers)
            except Lost as lost:
                delay_s = max(backoff.next_s(), lost.after_s)
                self._on_retry(lost, delay_s)
                self._wait(delay_s)
        return self._send(body, headers)

    def _send(self, body: bytes, headers: Mapping[str, str]) -> list[str]:
        with connection.translated(self._url):
            answer = self._client.post(self._url, content=body, headers=headers)
        if answer.status_code == 204:
            return []
        if answer.status_code != 200:
            raise error_of_answer(answer)
        return _ids(answer.content)


def encode(operation: Mapping[str, Any]) -> bytes:
    """Return one operation as a line of JSON, in ASCII so that any text can be sent."""
    return json.dumps(operation, separators=(",", ":")).encode()


def _part_key(key: str, part: int) -> str:
    """Return the same key for the same part whenever the request with *key* is repeated."""
    return hashlib.sha256(f"{key}/{part}".encode()).hexdigest()[:32]


def _shifted(error: Refused, lines: int) -> Refused:
    """Return *error* with its line counted from *lines* lines earlier."""
    line = LINE_OF_BODY.match(error.message)
    if line is None:
        return error
    message = f"line {int(line[1]) + lines}: {error.message[line.end() :]}"
    return type(error)(message, status=error.status, code=error.code)


def _ids(content: bytes) -> list[str]:
    """Return the ids of a success. The answer may also come from a proxy, with status 200."""
    try:
        return [str(event_id) for event_id in json.loads(content)["ids"]]
    except (ValueError, KeyError, TypeError):
        raise Lost("the answer is not one of a feed; is the address right?") from None
