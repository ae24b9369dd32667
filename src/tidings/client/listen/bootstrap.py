"""Read the current objects of a feed, page by page or a single one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from tidings.client.address import base_url
from tidings.client.errors import Lost
from tidings.client.listen.messages import Bootstrap
from tidings.client.transport.feed_api import FeedApi

Object = dict[str, Any]


class Objects(FeedApi):
    """A connection to read the objects of one feed. Close it, or use `with`."""

    def one(self, kind: str, name: str) -> Object | None:
        """
        Return the object *name* of the type *kind*; None if it does not exist.

        Raises:
            Lost: the server did not answer.
            AccessDenied, Refused: the server gave a final answer.
        """
        objects, _ = self._page("objects", {"type": kind, "id": name})
        return objects[0] if objects else None

    def all(self, kind: str = "") -> Iterator[Object]:
        """Yield the objects of the type *kind*, or all objects. Raise the same errors as `one`."""
        return self.below("objects", {"type": kind} if kind else {})

    def below(self, path: str, query: dict[str, str]) -> Iterator[Object]:
        """Yield the objects of all pages from *path* on. Raise the same errors as `one`."""
        while True:
            objects, after = self._page(path, query)
            yield from objects
            if after is None:
                return
            query["after"] = after

    def _page(self, path: str, query: Mapping[str, str]) -> tuple[list[Object], str | None]:
        """Return the objects of one page, and the query *after* for the next one."""
        answer = self.ask("GET", path, query=query)
        if "objects" not in answer or "next" not in answer:
            raise Lost("the answer is not one of a feed; is the address right?")
        return answer["objects"], answer["next"]


class ObjectPages:
    """Implements `Fetch` for the routes of a feed at *url*. It ignores routes of other services."""

    def __init__(self, url: str, password: str = "") -> None:
        self._url, self._password = base_url(url), password

    def __call__(self, bootstrap: Bootstrap) -> Iterator[Mapping[str, Any]]:
        """
        Yield the objects of the route.

        Raises:
            Lost: a page could not be read; register again.
            AccessDenied, Refused: the server gave a final answer.
        """
        parts = urlsplit(bootstrap.route)
        if not (parts.path.startswith("/feeds/") and parts.path.endswith("/objects")):
            return
        with Objects(self._url, password=self._password) as objects:
            yield from objects.below(parts.path, dict(httpx.QueryParams(parts.query)))
