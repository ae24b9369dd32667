"""Create, list, show and delete the feeds of a host (PROTOCOL 23)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from tidings.client.address import NEW
from tidings.client.feed_api import Answer, FeedApi

FEEDS = "/feeds"
LIVE, DELETING, DELETED = "live", "deleting", "deleted"


class Feeds(FeedApi):
    """Requests about the feeds of one host.

    *password* is a key or the ingest password of the host. To list and show feeds, a key with the
    role `read` suffices. Close the object, or use `with`. Threads may share it.
    """

    def __init__(self, url: str, *, password: str = "", timeout_s: float | None = None) -> None:
        super().__init__(url, password=password, timeout_s=timeout_s)

    def create(
        self, name: str, settings: Mapping[str, Any] | None = None, *, update: bool = True
    ) -> Answer:
        """Create the feed *name* with *settings* (PROTOCOL 23.1), and return its record.

        If the feed exists, change these settings and keep the others; with *update* False, refuse
        (`Refused` with the code `feed_exists`). The call may be repeated after `Lost`.

        Raises:
            AccessDenied, Refused: the server gave a final answer.
            Lost: no answer arrived; the feed may have been created.
        """
        headers = {} if update else NEW
        return self.ask("PUT", _path(name), body=settings or {}, headers=headers)

    def list(self, *, deleted: bool = False) -> Iterator[Answer]:
        """Yield the records of all feeds that the credential permits, by name, without settings.

        With *deleted*, include the deleted feeds. Raise the same errors as `show`.
        """
        query = {"deleted": "true"} if deleted else {}
        while True:
            answer = self.ask("GET", FEEDS, query=query)
            yield from answer["feeds"]
            if answer["next"] is None:
                return
            query["after"] = answer["next"]

    def show(self, name: str) -> Answer:
        """Return the record of the feed *name* with its settings and the report of its removal.

        Raises:
            AccessDenied, Refused: the server gave a final answer.
            Lost: no answer arrived.
        """
        return self.ask("GET", _path(name))

    def delete(self, name: str, *, force: bool = False, tables: bool = False) -> Answer:
        """Delete the feed *name* with everything that it stores, and return its record.

        The removal continues after the call, until the `state` of the record is `deleted`. With
        *force*, delete the feed although it has named consumers, webhooks or a relay. With
        *tables*, also remove its Iceberg tables. The call may be repeated after `Lost`.

        Raises:
            AccessDenied, Refused: the server gave a final answer.
            Lost: no answer arrived; the feed may have been deleted.
        """
        query = {"confirm": name}
        query |= {key: "true" for key, is_set in (("force", force), ("tables", tables)) if is_set}
        return self.ask("DELETE", _path(name), query=query)


def _path(name: str) -> str:
    return f"{FEEDS}/{quote(name, safe='')}"
