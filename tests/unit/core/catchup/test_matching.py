"""The events and the SSE text that a catch-up sends of pages and rows, whole or filtered.

Refs: where an event's object is found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryTags
from tests.unit.core.catchup.test_sse import text
from tests.unit.core.changeagent.test_list import ids
from tests.unit.core.consumers.consumer_scene import ConsumerScene
from tests.unit.core.scene import FEED, NOW, PAGE_MS, Scene, line, op, page
from tidings.core.catchup import matching
from tidings.core.catchup.catchup import Progress
from tidings.core.catchup.matching import Chosen, PageSlice, Part, Rows, page_events, page_part
from tidings.core.changeagent.changes import number_of
from tidings.core.changeagent.list import Query
from tidings.core.changeagent.tag_index import Indexer
from tidings.core.errors import InvalidConsumer, UnknownChange
from tidings.core.model import cursors, events
from tidings.core.model.cursors import Now, Place
from tidings.core.model.events import Event, of_line, to_sse
from tidings.core.model.filters import EVERYTHING, Filter, parse, wanting
from tidings.core.model.operations import line_from, parse_line
from tidings.core.model.pages import Page, encode
from tidings.core.sync.corrections import Conflicts

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
EVENTS = st.sampled_from(("insert", "update", "delete"))


def same(part: Part) -> bool:
    """Return True if the text is that of the events."""
    return part.sse() == "".join(events.to_sse(event) for event in part.events())


@given(st.lists(st.tuples(NAMES, EVENTS), min_size=1, max_size=5), st.integers(0, 5))
def test_O30_a_slice_of_a_page_is_the_text_of_its_events(
    operations: list[tuple[str, str]], first: int
) -> None:
    """For any names the fast path and the slow one write the same blocks."""
    lines = [line(name, event, parents=[name]) for name, event in operations]
    part = PageSlice(Page(7, encode(lines), "", NOW), first)

    assert same(part)
    assert len(list(part.events())) == max(0, len(lines) - first)


@given(st.sets(st.integers(0, 9)), st.integers(0, 10))
def test_a_slice_of_a_page_with_holes(slots: set[int], first: int) -> None:
    """The same two ways; it begins with the next entry where the slot is a hole."""
    whole = page(7, *(line(f"x{number}") for number in range(10)))
    part = PageSlice(whole.only([(slot, whole.lines[slot]) for slot in sorted(slots)]), first)

    assert same(part)
    ids = [event.id for event in part.events()]
    assert ids == [f"{whole.id_prefix}{slot:06x}" for slot in sorted(slots) if slot >= first]


def test_a_packed_page_and_a_filler() -> None:
    """Deflated or empty makes no difference."""
    lines = [line(f"x{number}") for number in range(1000)]
    packed = PageSlice(Page(7, encode(lines), "", NOW))

    assert isinstance(packed.page.body, bytes)
    assert same(packed) and packed.sse().count("\n\n") == 1000
    assert PageSlice(page(8)).sse() == ""


@given(st.lists(NAMES, max_size=5))
def test_O60_rows_are_inserts_under_one_id(names: list[str]) -> None:
    """The id is the bucket's cursor, the event insert, whatever the object's last one was."""
    part = Rows("0" * 24, [line(name, "update") for name in names])

    assert same(part)
    assert {(event.id, event.name) for event in part.events()} <= {("0" * 24, "insert")}


def test_chosen_events() -> None:
    """They are sent unchanged; marks get the data that browsers need."""
    part = Chosen([Event("1", "reset", ""), events.of_line("p", 1, line())])

    assert same(part)
    assert part.sse().startswith("id: 1\nevent: reset\ndata: {}\n\nid: p000001\n")
    assert op()["id"] in part.sse()


ANN = "user/ann"
COMPLETE_PAGE = page(7, line("a"), line("b", parents=[ANN]), line("c"))
SELECTED = COMPLETE_PAGE.only([(1, line("b", parents=[ANN]))])
COMPACTED = replace(SELECTED, compacted=True)


def slots(events: list[Event]) -> list[str]:
    """Return `update 000001`, ..."""
    return [f"{event.name} {event.id[-6:]}" for event in events]


def picked(of: Page, wanted: Filter = EVERYTHING, first: int = 0) -> list[str]:
    return slots(list(page_part(of, wanted, first).events()))


def test_events_of_a_page() -> None:
    """From a slot on, with their ids."""
    assert slots(list(page_events(COMPLETE_PAGE, EVERYTHING, 1))) == [
        "update 000001",
        "update 000002",
    ]
    assert picked(COMPLETE_PAGE, first=2) == ["update 000002"]
    assert picked(COMPLETE_PAGE, parse(None, ANN)) == ["update 000001"]


WORDS = st.text("ab", min_size=1, max_size=3)
OTHERS = frozenset(f"other{number}" for number in range(9))
VALUES = st.none() | st.frozensets(WORDS | st.sampled_from(["a*", "bb*"]), max_size=3)


@given(
    VALUES,
    VALUES,
    VALUES,
    st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=17, max_size=19),
    st.integers(0, 20),
)
def test_every_filter_of_a_page_finds_the_same(
    types: frozenset[str] | None,
    parents: frozenset[str] | None,
    ids: frozenset[str] | None,
    operations: list[tuple[str, str, str]],
    first: int,
) -> None:
    """The first filter searches the lines, later ones the names that were parsed for all."""
    lines = [line(id_, type=type_, parents=[parent]) for type_, parent, id_ in operations]
    short = (types, parents, ids)
    long = tuple(values and values | OTHERS for values in short)
    page = Page(7, encode(lines), "", NOW)
    wanted = wanting(*short, leave=False)

    matching = [wanted.matches(parse_line(each)) for each in lines]
    expected = [f"update {slot:06x}" for slot in range(first, len(lines)) if matching[slot]]
    assert picked(page, wanted, first) == expected
    assert picked(page, wanting(*long, leave=False), first) == expected
    assert picked(page, wanted, first) == expected
    text = "".join(map(to_sse, page_events(page, wanted, first)))
    assert page_part(page, wanted, first).sse() == text


def test_a_long_filter_finds_parents_that_were_removed() -> None:
    """They are in no line of the page; if they are unknown, each line may have removed one."""
    page = Page(7, encode([line(f"x{number}", parents=["a"]) for number in range(20)]), "", NOW)
    wanted = wanting(None, frozenset({"gone"}) | OTHERS, leave=True)

    for _ in range(3):  # the first search does not use the names of the page
        assert slots(list(page_events(page, wanted, 0, {}))) == []
    assert slots(list(page_events(page, wanted, 0, {3: ("gone",)}))) == ["leave 000003"]
    assert len(list(page_events(page, wanted, 0, None))) == 20


def test_an_entry_that_was_left_keeps_its_id() -> None:
    """Neither a selection nor compaction moves it: consumers have these ids."""
    for left in (SELECTED, COMPACTED):
        assert picked(left) == picked(left, first=1) == ["update 000001"]
        assert picked(left, first=2) == []
        anns = parse(None, ANN)
        assert picked(left, anns) == picked(left, anns, 1) == ["update 000001"]
        assert picked(left, parse("user", None)) == picked(left, anns, 2) == []


def test_removed_parents_of_a_compacted_page_are_unknown() -> None:
    """The operation that removed the parent may have been compacted: any entry that does not match
    may have left.
    """
    leaving = parse(None, "user/bob", "true")

    assert slots(list(page_events(COMPACTED, leaving, 0, {}))) == ["leave 000001"]
    assert slots(list(page_events(COMPLETE_PAGE, leaving, 0, {}))) == []


def test_removed_parents_of_what_was_copied_are_known() -> None:
    """A feed that copied some entries of a page has worked out itself what they took away."""
    leaving = parse(None, "user/bob", "true")

    assert slots(list(page_events(SELECTED, leaving, 0, {}))) == []
    assert slots(list(page_events(SELECTED, leaving, 0, {1: ("user/bob",)}))) == ["leave 000001"]
    assert slots(list(page_events(SELECTED, leaving, 0, None))) == ["leave 000001"]
    assert slots(list(page_events(SELECTED, leaving, 2, None))) == []


TEMPLATE = "http://api/{{type}}/{{id}}"


def event_of(name: str = "x1", **fields: Any) -> Event:
    return of_line("", 0, line(name, **fields))


def ref_of(event: Event, template: str = TEMPLATE) -> object:
    return json.loads(matching.with_ref(event, template).data)["ref"]


def test_O32_the_last_key_of_the_data() -> None:
    """The ref is added after all other fields; nothing else changes."""
    event = event_of("X1", data={"a": 1})

    linked = matching.with_ref(event, TEMPLATE)
    assert linked == event._replace(data=event.data[:-1] + ',"ref":"http://api/video/X1"}')
    assert list(json.loads(linked.data))[-1] == "ref"


@pytest.mark.parametrize(
    ("template", "name", "ref"),
    [
        ("{{id}}", "x1", "x1"),
        ("{{id}}{{id}}-{{type}}", "x1", "x1x1-video"),
        ("http://api/all", "x1", "http://api/all"),
        ("{{{id}}}", "x1", "{x1}"),
        (TEMPLATE, "a b/ä?&<\"'\\", "http://api/video/a b/ä?&<\"'\\"),
        (TEMPLATE, "{{type}}", "http://api/video/{{type}}"),
        (TEMPLATE, "\\g<0>\\1", "http://api/video/\\g<0>\\1"),
        (TEMPLATE, "a\u2028b", "http://api/video/a\u2028b"),
    ],
)
def test_O32_replaced_as_text(template: str, name: str, ref: str) -> None:
    """Every placeholder is replaced in one pass without escaping; braces in a name are text."""
    event = event_of(name)

    assert ref_of(event, template) == ref
    assert len(matching.with_ref(event, template).data.splitlines()) == 1


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
def test_O32_any_name(name: str) -> None:
    """The result is JSON and has the name unchanged."""
    assert ref_of(event_of(name)) == f"http://api/video/{name}"


def test_without_a_template_nothing_is_touched() -> None:
    """The very same events and parts: no line is parsed."""
    event, parts = event_of(), [PageSlice(page(1, line()))]

    assert matching.with_ref(event, "") is event
    assert matching.with_refs(parts, "") is parts


def test_a_part_in_both_forms() -> None:
    """SSE blocks and events have the same content."""
    events = [event_of("a"), Event("1", "live", "")]
    (part,) = matching.with_refs([Chosen(events)], TEMPLATE)

    expected = [matching.with_ref(events[0], TEMPLATE), events[1]]
    assert list(part.events()) == expected
    assert part.sse() == "".join(map(to_sse, expected))


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
    return stream_slots(text(scene.streamer.open(FEED, cursor, wanted)))


def stream_slots(sse: str) -> list[str]:
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
