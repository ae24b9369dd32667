"""A page of which a chained feed copied some entries: the other slots are holes.

The copied entries keep their ids, and a cursor at a slot that was not copied can be resumed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.fakes import MemoryTags
from tests.unit.core.catchup.test_sse import text
from tests.unit.core.changeagent.test_list import ids
from tests.unit.core.consumers.consumer_scene import ConsumerScene
from tests.unit.core.scene import FEED, PAGE_MS, Scene, op
from tidings.core.catchup.catchup import Progress
from tidings.core.changeagent.changes import number_of
from tidings.core.changeagent.list import Query
from tidings.core.changeagent.tag_index import Indexer
from tidings.core.errors import InvalidConsumer, UnknownChange
from tidings.core.model import cursors
from tidings.core.model.cursors import Now, Place
from tidings.core.model.filters import parse
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.core.sync.corrections import Conflicts

ANN = "user/ann"
KEPT = (1, 3, 4)  # of the six entries of a page


def copied(scene: Scene, kept: Sequence[int] = KEPT, **fields: Any) -> Page:
    """Store a page with only the entries in the slots *kept*; the one in slot n is object n."""
    number, now = scene.log.take(FEED), scene.now_ms
    lines = [line_from(op(str(slot), **fields), now_ms=now) for slot in range(6)]
    whole = Page(number, encode(lines), f"copy-{number}", now, now + PAGE_MS)
    page = whole.only([(slot, lines[slot]) for slot in kept])
    scene.log.put(FEED, page)
    return page


def stream(scene: Scene, cursor: str, **wanted: str | None) -> list[str]:
    """Return `slot object` of the events of an SSE stream from *cursor* to the end of the log."""
    return slots(text(scene.streamer.open(FEED, cursor, wanted)))


def slots(sse: str) -> list[str]:
    blocks = [block.split("\n") for block in sse.split("\n\n") if block]
    return [f"{int(b[0][-6:], 16)} {json.loads(b[2][6:])['id']}" for b in blocks]


def test_event_streams(scene: Scene) -> None:
    """Sliced or filtered; a hole is as good a place to resume from as any."""
    page = copied(scene, parents=[ANN])
    everything = ["1 1", "3 3", "4 4"]

    assert stream(scene, cursors.START.encode()) == everything
    assert stream(scene, cursors.START.encode(), parents=ANN) == everything
    for slot, rest in ((0, everything), (1, everything[1:]), (2, everything[1:]), (5, [])):
        cursor = Place(page.number, slot, page.seconds).encode()
        assert stream(scene, cursor) == stream(scene, cursor, parents=ANN) == rest


def test_web_sockets(scene: Scene) -> None:
    """The page is pushed as it arrives, and replayed from a hole."""
    scene.subscribe("live")
    scene.push()
    page = copied(scene)
    scene.push()
    ids = [event["id"] for message in scene.heard("live") for event in message.get("events", ())]
    assert ids == [f"{page.id_prefix}{slot:06x}" for slot in KEPT]

    scene.resume(Place(page.number, 2, page.seconds).encode(), "late")
    assert scene.events("late") == ["3", "4"]


def test_lists_of_changes(scene: Scene) -> None:
    """The entries keep their numbers; a hole is not a change."""
    page = copied(scene)
    lister = scene.lister()
    numbers = [number_of(page.number, slot) for slot in KEPT]

    listing = lister.list(FEED, Query())
    assert ids(listing) == numbers and listing.head == numbers[-1]
    assert ids(lister.list(FEED, Query(since=number_of(page.number, 2)))) == numbers[1:]
    assert json.loads(lister.one(FEED, numbers[1]))["data"]["id"] == "3"
    for slot in (0, 2, 5):
        with pytest.raises(UnknownChange):
            lister.one(FEED, number_of(page.number, slot))


def test_lists_by_tag(scene: Scene) -> None:
    """The result is the same with the index and without it."""
    copied(scene, type="a")
    page = copied(scene, type="b")
    tags = MemoryTags()
    lister = scene.lister(tags)

    for _ in range(2):
        listing = lister.list(FEED, Query(tags=frozenset({"b"})))
        assert ids(listing) == [number_of(page.number, slot) for slot in KEPT]
        Indexer(tags, scene.reader, scene.runtime.steady, PAGE_MS).run(FEED)


def test_the_state_and_what_moved(scene: Scene) -> None:
    """A row has the page and the slot of its operation."""
    page = copied(scene)
    scene.project()

    rows = [row for bucket in range(64) for row in scene.state.read(FEED, bucket)]
    assert sorted((row.key, row.page, row.slot) for row in rows) == [
        (f"video/{slot}", page.number, slot) for slot in KEPT
    ]
    where = Conflicts((), 0)
    where.see_pages([page])
    assert where.page == page.number


def test_leaves(scene: Scene) -> None:
    """Removed parents are stored under the slots of the operations that removed them."""
    scene.keep_removed_parents()
    copied(scene, parents=[ANN])
    scene.project()
    scene.subscribe(parents=[ANN], leave=True)
    scene.push()
    page = copied(scene)
    scene.project()

    removed_parents = scene.removed_parents.read(FEED, page.number, page.number)
    assert [dict(each.by_slot) for each in removed_parents] == [dict.fromkeys(KEPT, (ANN,))]
    progress = Progress(page.number - 1, seconds=page.seconds)
    step = scene.catch_up.step(FEED, progress, parse(None, ANN, "true"))
    expected = [f"{page.id_prefix}{slot:06x}" for slot in KEPT]
    assert [event.id for event in step.events] == expected
    scene.push()
    pushed = [event for message in scene.heard("c") for event in message.get("events", ())]
    assert [(event["event"], event["id"]) for event in pushed] == [("leave", i) for i in expected]


def test_named_consumers() -> None:
    """They acknowledge what is there; their position may lie on a hole."""
    feed = ConsumerScene()
    page = copied(feed.scene)
    places = [Place(page.number, slot, page.seconds) for slot in KEPT]
    feed.places += places
    feed.register()

    assert [each.place for each in feed.view.entries(FEED, places[0], None, 9)] == places
    oldest = feed.view.oldest(FEED)
    assert oldest is not None and oldest.place == places[0]
    assert feed.view.current(FEED) == places[-1]
    session = feed.ack(feed.lease(), 1)
    assert feed.view.upcoming(session.consumer).place == places[0]  # type: ignore[union-attr]
    session = feed.ack(session, 0)
    assert feed.view.upcoming(session.consumer).place == places[2]  # type: ignore[union-attr]
    with pytest.raises(InvalidConsumer):
        feed.view.check_entries(FEED, [Place(page.number, 2, page.seconds)])
    session = feed.ack(session, 2)
    assert feed.view.upcoming(session.consumer) is None


def test_a_page_of_which_nothing_was_kept(scene: Scene) -> None:
    """Every reader sees the page, without entries."""
    first = copied(scene)
    empty = copied(scene, ())
    after = copied(scene, (5,))

    assert stream(scene, first.end.encode()) == ["5 5"]
    assert stream(scene, empty.end.encode()) == ["5 5"]
    listing = scene.lister().list(FEED, Query(since=number_of(empty.number, 0)))
    assert ids(listing) == [number_of(after.number, 5)]
    assert scene.catch_up.start(FEED, Now()).page == after.number
