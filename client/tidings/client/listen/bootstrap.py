"""The objects of a feed as they are now, page by page or one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
from tidings.client.address import base_url, feed_url
from tidings.client.closing import Closing
from tidings.client.errors import Lost
from tidings.client.listen.messages import Bootstrap
from tidings.client.retry_policy import error_of, retry_after_s
from tidings.client.transport import connection

Object = dict[str, Any]


class Objects(Closing):
    """A connection to ask one feed for its objects. Close it, or use `with`."""

    def __init__(self, url: str, feed: str = "main", *, password: str = "") -> None:
        self._url = f"{feed_url(url, feed)}/objects"
        self._client = connection.opened(password)

    def close(self) -> None:
        self._client.close()

    def one(self, kind: str, name: str) -> Object | None:
        """
        The object *name* of the type *kind*; None where it does not live.

        Raises:
            Lost: no answer.
            AccessDenied, Refused: there never will be one.
        """
        found = _page(self._client, self._url, {"type": kind, "id": name})["objects"]
        return found[0] if found else None

    def all(self, kind: str = "") -> Iterator[Object]:
        """Those of the type *kind*, or every one. Raises as `one`."""
        return _pages(self._client, self._url, {"type": kind} if kind else {})


class ObjectPages:
    """Implements `Fetch` for the routes of a feed at *url*; of another service it reads nothing."""

    def __init__(self, url: str, password: str = "") -> None:
        self._url, self._password = base_url(url), password

    def __call__(self, bootstrap: Bootstrap) -> Iterator[Mapping[str, Any]]:
        """
        Raises:
            Lost: a page did not come; register and begin again.
            AccessDenied, Refused: it never will.
        """
        parts = urlsplit(bootstrap.route)
        if not (parts.path.startswith("/feeds/") and parts.path.endswith("/objects")):
            return
        with connection.opened(self._password) as client:
            query = dict(httpx.QueryParams(parts.query))
            yield from _pages(client, f"{self._url}{parts.path}", query)


def _pages(client: httpx.Client, url: str, query: dict[str, str]) -> Iterator[Object]:
    while True:
        page = _page(client, url, query)
        yield from page["objects"]
        if page["next"] is None:
            return
        query["after"] = page["next"]


def _page(client: httpx.Client, url: str, query: Mapping[str, str]) -> dict[str, Any]:
    with connection.translated(url):
        answer = client.get(url, params=query)
    if answer.status_code != 200:
        raise error_of(answer.status_code, answer.content, after_s=retry_after_s(answer))
    try:
        found: dict[str, Any] = answer.json()
        return {"objects": found["objects"], "next": found["next"]}
    except (ValueError, KeyError, TypeError):
        raise Lost("the answer is not one of a feed; is the address right?") from None
