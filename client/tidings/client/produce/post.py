"""Post operations so that each batch is appended once, however often it has to be sent."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidings.client.address import operations_url
from tidings.client.backoff import Backoff
from tidings.client.closing import Closing
from tidings.client.errors import Lost
from tidings.client.retry_policy import error_of_answer
from tidings.client.transport import connection

ATTEMPTS_MAX = 8  # some two minutes: longer than a deployment, shorter than a person waits


class Poster(Closing):
    """
    A connection to post to one feed, kept open between batches. Close it, or use `with`.

    *on_retry* hears of each failure and the seconds until the next attempt.
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
        """Append *operations* as one page; their event ids. See `post_lines`."""
        return self.post_lines([encode(operation) for operation in operations], key=key)

    def post_lines(self, lines: Sequence[bytes], *, key: str = "") -> list[str]:
        """
        Append *lines*, one operation in JSON each, as one page; their event ids.

        Repeated until it is answered, with the same Idempotency-Key (*key*, else a fresh
        one), so it is appended once. A *key* that was used within a day appends nothing.

        Raises:
            AccessDenied: the password is not the feed's; nothing was appended.
            Refused: the operations or the feed are wrong; nothing was appended.
            Lost: no answer after all attempts; nobody knows whether it was appended.
        """
        headers = {
            "Content-Type": "application/x-ndjson",
            "Idempotency-Key": key or secrets.token_hex(16),
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
    """One operation as a line of JSON; in ASCII, so that any text at all can be sent."""
    return json.dumps(operation, separators=(",", ":")).encode()


def _ids(content: bytes) -> list[str]:
    """The ids of a success; something else in between may have answered 200 in its place."""
    try:
        return [str(event_id) for event_id in json.loads(content)["ids"]]
    except (ValueError, KeyError, TypeError):
        raise Lost("the answer is not one of a feed; is the address right?") from None
