"""HTTP requests to a feed that are answered with a JSON object or lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from tidings.client.address import base_url, feed_url
from tidings.client.closing import Closing
from tidings.client.errors import Lost
from tidings.client.retry_policy import error_of_answer
from tidings.client.transport import connection

_NDJSON = "application/x-ndjson"

Answer = dict[str, Any]


class FeedApi(Closing):
    """A connection for requests to one feed. Close it, or use `with`. Threads may share it."""

    def __init__(self, url: str, feed: str = "main", *, password: str = "") -> None:
        self._root, self._url = base_url(url), feed_url(url, feed)
        self._client = connection.opened(password)

    def close(self) -> None:
        self._client.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """
        Send a request and return its answer.

        *path* is below the feed, or below the deployment if it begins with a slash.

        Raises:
            AccessDenied, FellOff, Refused: the answer is final, with its status and code.
            Lost: no answer, or not one of a feed; the request may have been handled.
        """
        return self._answer(method, path, json=body, params=query or {})

    def send(self, path: str, lines: bytes, *, query: Mapping[str, str]) -> Answer:
        """POST *lines* of JSON. See `ask`."""
        headers = {"content-type": _NDJSON}
        return self._answer("POST", path, content=lines, params=query, headers=headers)

    def lines(self, path: str, *, query: Mapping[str, str]) -> list[str]:
        """Return the lines of JSON that answer a GET. See `ask`."""
        return self._answered("GET", path, params=query).text.rstrip("\n").split("\n")

    def _answer(self, method: str, path: str, **sent: Any) -> Answer:
        return _read(self._answered(method, path, **sent))

    def _answered(self, method: str, path: str, **sent: Any) -> httpx.Response:
        target = f"{self._root}{path}" if path.startswith("/") else f"{self._url}/{path}"
        with connection.translated(self._url):
            answer = self._client.request(method, target, **sent)
        if not answer.is_success:
            raise error_of_answer(answer)
        return answer


def _read(answer: httpx.Response) -> Answer:
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Lost("the answer is not one of a feed; is the address right?")
    return content
