"""Answers to clients that wait for the same list: built once, and shared only if a cache may."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.fakes import MemoryOperatorDocuments
from tests.unit.core.changeagent.gates import gate
from tests.unit.core.scene import FEED, Scene
from tidings.core.auth.passwords import hash_password
from tidings.core.changeagent.changes import Change, line_of, number_of
from tidings.core.changeagent.list import Listing, extend_listing
from tidings.core.model.feeds import FixedFeeds
from tidings.core.model.pages import Page
from tidings.core.replication.serve import ReplicationReader
from tidings.core.replication.wire import ReplicationBatch
from tidings.http.asgi import App, Message
from tidings.http.streams import lists
from tidings.http.streams.lists import ChangeLists, ReplicationApp

SHARED = "s-maxage=1"
ALONE = "no-cache, no-store, must-revalidate"
PATIENCE_S = 180.0
LIST = f"/feeds/{FEED}/changes"
PAGES = f"/feeds/{FEED}/pages"


@dataclass
class Feed:
    """Its lists and pages, in this process."""

    scene: Scene

    def __post_init__(self) -> None:
        feeds, documents = FixedFeeds(frozenset({FEED})), MemoryOperatorDocuments()
        self.lists = ChangeLists(
            guard=lambda: self.scene.guard,
            clock=self.scene.clock,
            feed_names=feeds,
            origins=("https://a.example",),
            lister=self.scene.lister,
            gate=lambda: gate(self.scene, documents),
        )
        replication_reader = ReplicationReader(self.scene.catch_up, self.scene.host.losses)
        self.pages = ReplicationApp(
            guard=lambda: self.scene.guard,
            clock=self.scene.clock,
            feed_names=feeds,
            origins=(),
            replication_reader=lambda: replication_reader,
        )

    def post(self) -> Page:
        line = line_of(Change('"' + "x" * 400 + '"', ("t",)), name="n", now_ms=self.scene.now_ms)
        return self.scene.appender.append(FEED, [line])

    async def get(self, path: str, query: str, **headers: str) -> tuple[int, dict[str, str]]:
        """Status and headers."""
        app: App = self.pages if path == PAGES else self.lists
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope: Message = {"type": "http", "method": "GET", "path": path, "headers": pairs}
        async with asyncio.timeout(PATIENCE_S):
            await app({**scope, "query_string": query.encode()}, receive, send)
        return sent[0]["status"], {k.decode(): v.decode() for k, v in sent[0]["headers"]}

    async def waited(self, path: str, shown: str, meanwhile: Callable[[], None]) -> int:
        """Return the status of a request that waits until *meanwhile* has run."""
        page = self.post()
        after = f"since={number_of(page.number, 0)}&after={page.end.encode()}&block=8"
        waiting = asyncio.ensure_future(self.get(path, after, authorization=shown))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        meanwhile()
        self.post()
        return (await waiting)[0]

    def control(self, path: str, query: str = "", **headers: str) -> str:
        return asyncio.run(self.get(path, query, **headers))[1]["cache-control"]


@pytest.fixture
def feed() -> Feed:
    return Feed(Scene())


@pytest.mark.parametrize(
    ("query", "control"),
    [
        ("block=5", SHARED),  # it would have waited: there is something
        ("since={last}&block=1", SHARED),  # it has waited, and nothing came
        ("limit=1", SHARED),  # more follows
        ("", ALONE),  # the end: it must include the latest acknowledged operation
        ("since={last}", ALONE),
        ("limit=0&block=5", ALONE),  # it waits for nothing
        ("strict=x", ALONE),
        ("block=x", ALONE),
    ],
)
def test_lists_that_are_shared(feed: Feed, query: str, control: str) -> None:
    """Lists that clients wait for are shared, and lists with more to follow."""
    feed.post()
    last = number_of(feed.post().number, 0)
    assert feed.control(LIST, query.format(last=last)) == control
    assert feed.control(f"{LIST}/{last}") == ALONE


@pytest.mark.parametrize(
    ("query", "control"),
    [
        ("block=5", SHARED),
        ("after={last}&block=1", SHARED),
        ("size=1000", SHARED),  # one page, and more follows
        ("size=1", ALONE),  # none fits
        ("", ALONE),
        ("size=x&block=5", ALONE),
    ],
)
def test_pages_that_are_shared(feed: Feed, query: str, control: str) -> None:
    """The rule is that of lists; rows of the state are never shared."""
    feed.post()
    last = feed.post().end.encode()
    assert feed.control(PAGES, query.format(last=last)) == control
    assert feed.control(f"/feeds/{FEED}/rows", "bucket=0") == ALONE


@pytest.mark.parametrize("path", [LIST, PAGES])
def test_it_says_what_it_depends_on(feed: Feed, path: str) -> None:
    """This includes requests of a page in a browser, which get a header that allows reading."""
    feed.post()
    _, headers = asyncio.run(feed.get(path, "block=5", origin="https://a.example"))
    assert headers["vary"] == "Accept-Encoding, Authorization, Origin"


def test_a_key_with_a_rate_shares_nothing(feed: Feed) -> None:
    """Its answers have to be counted."""
    feed.post()
    for rate, control in ((0, SHARED), (5, ALONE)):
        shown = f"Bearer {feed.scene.key(rate=rate).encode()}"
        assert feed.control(LIST, "block=5", authorization=shown) == control
        assert feed.control(PAGES, "block=5", authorization=shown) == control


@pytest.mark.parametrize("path", [LIST, PAGES])
def test_17_7_a_wait_tells_nothing_to_a_key_that_has_ended(feed: Feed, path: str) -> None:
    """Neither does one with a rate, whose answers are not shared; a waiting request counts once."""
    given = feed.scene.key(rate=1)
    shown = f"Bearer {given.encode()}"

    def revoke() -> None:
        feed.scene.issuer.revoke(FEED, given.id)

    assert asyncio.run(feed.waited(path, shown, lambda: None)) == 200
    feed.scene.now_ms += 1_000
    assert asyncio.run(feed.waited(path, shown, revoke)) == 401


@pytest.mark.parametrize("path", [LIST, PAGES])
def test_a_wait_is_answered_by_what_is_valid_then(feed: Feed, path: str) -> None:
    """A client that joins the wait late may have a password that was changed since it began."""
    profiles = feed.scene.profiles

    def let_in(password: str) -> None:
        stored = (hash_password(password, salt=b"s" * 16, now_ms=0),)
        standing = profiles.profile(FEED)
        assert profiles.save(FEED, replace(standing, read_passwords=stored))

    shown = f"Basic {b64encode(b':the first one').decode()}"
    let_in("the first one")
    assert asyncio.run(feed.waited(path, shown, lambda: None)) == 200
    assert asyncio.run(feed.waited(path, shown, lambda: let_in("the second one"))) == 401


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
