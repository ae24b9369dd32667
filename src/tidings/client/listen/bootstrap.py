"""The objects of a feed as they are now, page by page or one of them."""

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
    """A connection to ask one feed for its objects. Close it, or use `with`."""

    def one(self, kind: str, name: str) -> Object | None:
        """
        The object *name* of the type *kind*; None where it does not live.

        Raises:
            Lost: no answer.
            AccessDenied, Refused: there never will be one.
        """
        objects, _ = self._page("objects", {"type": kind, "id": name})
        return objects[0] if objects else None

    def all(self, kind: str = "") -> Iterator[Object]:
        """Those of the type *kind*, or every one. Raises as `one`."""
        return self.below("objects", {"type": kind} if kind else {})

    def below(self, path: str, query: dict[str, str]) -> Iterator[Object]:
        """Those of all pages from *path* on. Raises as `one`."""
        while True:
            objects, after = self._page(path, query)
            yield from objects
            if after is None:
                return
            query["after"] = after

    def _page(self, path: str, query: Mapping[str, str]) -> tuple[list[Object], str | None]:
        """The objects of one page, and the query *after* for the next one."""
        answer = self.ask("GET", path, query=query)
        if "objects" not in answer or "next" not in answer:
            raise Lost("the answer is not one of a feed; is the address right?")
        return answer["objects"], answer["next"]


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
        with Objects(self._url, password=self._password) as objects:
            yield from objects.below(parts.path, dict(httpx.QueryParams(parts.query)))
