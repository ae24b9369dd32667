"""Replies to clients that wait for the same list or pages: read and encoded once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.core.scene import FEED, Scene
from tests.unit.http.test_caching import LIST, PAGES, Feed
from tidings.core.changeagent.changes import number_of
from tidings.core.changeagent.list import Listing, extend_listing
from tidings.core.replication.serve import ReplicationReader
from tidings.core.replication.wire import ReplicationBatch
from tidings.http.streams import lists


@pytest.fixture
def feed() -> Feed:
    return Feed(Scene())


async def wait_for_page(feed: Feed, path: str, *queries: str) -> list[tuple[int, dict[str, str]]]:
    """Return the replies to requests with *queries* that wait for one page."""
    page = feed.post()
    after = f"since={number_of(page.number, 0)}&after={page.end.encode()}&block=8"
    waiting = [asyncio.ensure_future(feed.get(path, after + query)) for query in queries]
    await asyncio.sleep(0.3)
    assert not any(each.done() for each in waiting)
    feed.post()
    feed.scene.project()
    return await asyncio.gather(*waiting)


def test_a_list_is_built_once_for_clients_that_request_the_same(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with other tags or another limit receives its own list."""
    built = list[Listing]()

    def extend(*arguments: Any) -> Listing:
        built.append(extend_listing(*arguments))
        return built[-1]

    monkeypatch.setattr(lists, "extend_listing", extend)
    replies = asyncio.run(wait_for_page(feed, LIST, "", "", "", "&limit=7", "&tag=t&tag=u"))
    assert [status for status, _ in replies] == [200] * 5
    assert len({headers["content-length"] for _, headers in replies}) == 1  # all have the entry
    assert len(built) == 3
    assert all(len(listing.entries) == 1 for listing in built)


def test_pages_are_read_once_for_relays_that_request_the_same(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay that copies another part receives its own pages."""
    read, reads = ReplicationReader.pages, list[int]()

    def pages(reader: ReplicationReader, *arguments: Any) -> ReplicationBatch:
        if feed.scene.log.head(FEED) > 1:  # not the first reads, which find nothing
            reads.append(1)
        return read(reader, *arguments)

    monkeypatch.setattr(ReplicationReader, "pages", pages)
    replies = asyncio.run(wait_for_page(feed, PAGES, "", "", "", "&types=video"))
    assert [status for status, _ in replies] == [200] * 4
    assert len(reads) == 2
