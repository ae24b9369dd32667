"""Streaming: a catch-up that never ends, as SSE text.

The tail: the last pages of a log in memory, read once for all waiting streams.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from tests.unit.core.scene import FEED, NOW, Scene, line, op, page
from tidings.core import limits
from tidings.core.auth.guard import Allowed, Credential
from tidings.core.auth.passwords import hash_password
from tidings.core.catchup import sse
from tidings.core.catchup.catchup import Progress, in_log
from tidings.core.catchup.matching import page_part
from tidings.core.catchup.sse import Stream, Tail
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.errors import InvalidFilter, StorageFailed
from tidings.core.log.reader import Run
from tidings.core.model.cursors import START
from tidings.core.model.filters import EVERYTHING, Filter, parse
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode, jump
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import Admission, Ended, with_ending

TRACE = f"00-{'0af7' * 8}-{'b7ad' * 4}-01"


def text(stream: Stream) -> str:
    """Return the text up to the frontier."""
    chunks = [stream.next()]
    while not chunks[-1].at_frontier:
        chunks.append(stream.next())
    return "".join(chunk.text for chunk in chunks)


CURSORS = {"cursors": "true"}


def test_7_7_a_silent_stream_tells_where_it_stands(scene: Scene) -> None:
    """It sends an id that resumes without a gap, or a comment if the feed does not move."""
    rare = {"types": "rare", **CURSORS}
    stream = scene.streamer.open(FEED, "now", rare)
    began = stream.progress
    assert stream.silence(began, began) == sse.HEARTBEAT

    scene.post(op("a"))
    chunk = stream.next()
    block = stream.silence(began, chunk.progress)
    assert (chunk.text, block) == ("", f"id: {stream.progress.cursor}\n\n")
    assert stream.silence(chunk.progress, chunk.progress) == sse.HEARTBEAT

    scene.post(op("b", type="rare"))
    resumed = scene.streamer.open(FEED, block.split()[1], {"types": "rare"})
    assert text(resumed).count("event:") == 1


def test_7_7_what_was_read_ahead_is_not_told_as_handled(scene: Scene) -> None:
    """The next chunk is read while one is sent: the place is that of the chunk, not of reading."""
    stream = scene.streamer.open(FEED, "now", CURSORS)
    before = stream.progress
    chunk = stream.next()
    scene.post(op("a"))
    stream.next()

    assert stream.silence(before, chunk.progress) == sse.HEARTBEAT


def test_7_7_a_copy_moves_too(scene: Scene) -> None:
    """Its cursor moves with each bucket, but neither before `reset` nor between its end and
    `live`."""
    scene.post(op("a"), op("b"))
    scene.project()
    stream = scene.streamer.open(FEED, "0", {"types": "rare", **CURSORS})
    began = stream.progress
    assert stream.silence(Progress(0), began) == sse.HEARTBEAT
    assert stream.beginning(without_cursor=False) == ""

    assert "reset" in stream.next().text
    amid = replace(stream.progress, bucket=7)
    assert stream.silence(stream.progress, amid) == f"id: {amid.cursor}\n\n"
    behind = replace(in_log(START), page=1, announces=True)
    assert stream.silence(amid, behind) == sse.HEARTBEAT


@pytest.mark.parametrize("cursors", [{}, {"cursors": "false"}, {"cursors": ""}])
def test_7_7_only_a_client_that_asks_is_sent_cursors(scene: Scene, cursors: dict[str, str]) -> None:
    """oplog's clients take a block without an event for a broken stream."""
    stream = scene.streamer.open(FEED, "now", {"types": "rare", **cursors})
    began = stream.progress
    scene.post(op("a"))

    assert stream.silence(began, stream.next().progress) == sse.HEARTBEAT
    assert stream.beginning(without_cursor=False) == ""


def test_7_7_the_switch_is_true_or_false(scene: Scene) -> None:
    """It has the values of `leave`."""
    with pytest.raises(InvalidFilter) as refused:
        scene.streamer.open(FEED, "", {"cursors": "yes"})
    assert refused.value.field == "cursors"


def test_7_7_a_client_that_asks_is_sent_its_cursor_first(scene: Scene) -> None:
    """A browser does not resume from a cursor that is in the address only."""
    scene.post(op("a"))
    stream = scene.streamer.open(
        FEED, (at := scene.streamer.open(FEED, "").progress.cursor), CURSORS
    )

    assert stream.beginning(without_cursor=False) == f"retry: 500\nid: {at}\n\n"
    assert scene.streamer.open(FEED, at, CURSORS, lines=True).beginning(without_cursor=False) == ""


@pytest.mark.parametrize("query", [{}, CURSORS])
@pytest.mark.parametrize("cursor", ["", "now"])
@pytest.mark.parametrize(
    ("form", "lines", "start"),
    [
        ("tidings", False, "retry: 500\nid: {at}\nevent: live\ndata: {{}}\n\n"),
        ("cloudevents", False, 'retry: 500\nid: {at}\nevent: live\ndata: {{"specversion":"1.0"'),
        ("tidings", True, '{{"id":"{at}","event":"live"}}\n'),
        ("cloudevents", True, '{{"specversion":"1.0"'),
        ("debezium", True, '{{"before":null'),
    ],
)
def test_7_4_a_stream_without_a_cursor_begins_with_live(
    scene: Scene, query: dict[str, str], cursor: str, form: str, lines: bool, start: str
) -> None:
    """On each host: oplog's clients take a cursor from an event only."""
    for _ in range(2):  # on an empty feed, too
        stream = scene.streamer.open(FEED, cursor, {**query, "format": form}, lines=lines)
        block = stream.beginning(without_cursor=True)
        assert block.startswith(start.format(at=stream.progress.cursor))
        assert stream.progress.cursor in block and stream.count(block) == 1
        assert block.endswith("}\n" if lines else "}\n\n")
        scene.post(op("a"))


def test_10_6_a_stream_ends_with_the_password_that_opened_it(scene: Scene) -> None:
    """Adding or removing another password does not end it."""
    old, new = (
        hash_password(each, salt=b"s", now_ms=1) for each in ("old-password", "new-password")
    )
    scene.configure(read_passwords=(old,))
    by_old = scene.streamer.open(FEED, "", {}, Credential("old-password"))
    scene.configure(read_passwords=(new, old))
    by_new = scene.streamer.open(FEED, "", {}, Credential("new-password"))
    assert not by_old.has_ended() and not by_new.has_ended()

    scene.configure(read_passwords=(new,))
    assert by_old.has_ended() and not by_new.has_ended()


def test_10_6_a_stream_of_an_open_feed_ends_with_its_first_password(scene: Scene) -> None:
    """P10.6: its client showed nothing, so it may not read any more."""
    stream = scene.streamer.open(FEED, "")
    scene.configure(object_url="/{{id}}")
    assert not stream.has_ended()
    assert stream.template == "/{{id}}"

    scene.configure(read_passwords=(hash_password("a-password", salt=b"s", now_ms=1),))
    assert stream.has_ended()


def refs_in(sse: str) -> list[str]:
    """Return the refs of the events in *sse*, each the last key of its data."""
    data = [each for each in sse.splitlines() if each.startswith('data: {"')]
    assert all(list(json.loads(each[6:]))[-1] == "ref" for each in data)
    return [json.loads(each[6:])["ref"] for each in data]


def test_O32_refs_on_every_way_of_an_event(scene: Scene) -> None:
    """Copies, the log, filtered streams and the tail have refs; they are made when sent, not
    stored."""
    scene.post(op("a", "insert", parents=["p"]))
    scene.project()
    scene.profiles.save(FEED, Profile(object_url="/{{type}}s/{{id}}"))
    copy = scene.streamer.open(FEED, "0")
    chosen = scene.streamer.open(FEED, "0", {"types": "video", "parents": "p"})
    assert refs_in(text(copy)) == refs_in(text(chosen)) == ["/videos/a"]

    page = scene.post(op("b", parents=["p"]))
    tail = Tail()
    tail.start(page.number - 1)
    tail.extend(Run([page]))
    for stream in (copy, chosen):
        taken = stream.take(tail)
        assert taken is not None and refs_in(taken.text) == ["/videos/b"]
    log = scene.streamer.open(FEED, f"{page.id_prefix}7fffff")
    scene.post(op("c"))
    assert refs_in(text(log)) == ["/videos/c"]


def test_a_stream_of_a_key_that_may_be_forgotten_ends(scene: Scene) -> None:
    """The profile keeps the last 1,000 revoked keys, and of older ones only the time."""
    scene.post(op("a"))
    stream = scene.streamer.open(FEED, "")
    stream.access.allowed = Allowed(admission=Admission("k0"))
    later = scene.now_ms + limits.ENDED_MAX
    standing: tuple[Ended, ...] = ()
    for n in range(limits.ENDED_MAX + 1):
        standing = with_ending(standing, Ended(f"k{n}", scene.now_ms))
    scene.profiles.save(FEED, Profile(ended=standing))
    scene.now_ms = later + 2 * limits.CLOCK_SKEW_MS_MAX
    assert "k0" not in {each.key for each in standing}
    assert stream.has_ended()
    after = scene.streamer.open(FEED, "")
    after.access.allowed = Allowed(admission=Admission("k9999"))
    assert not after.has_ended()


def test_O32_what_many_streams_wait_for_is_linked_once(scene: Scene) -> None:
    """The very same text for all of them, as without refs; one for each template."""
    scene.profiles.save(FEED, Profile(object_url="/{{id}}"))
    streams = [scene.streamer.open(FEED, "") for _ in range(2)]
    page = scene.post(op("a"))
    tail = Tail()
    tail.extend(Run([page]))
    chunks = [stream.take(tail) for stream in streams]
    first, second = (chunk.parts[0].sse() for chunk in chunks if chunk is not None)

    assert first is second
    assert refs_in(first) == ["/a"]


def traced(scene: Scene, name: str, trace: str = TRACE) -> Page:
    line = line_from(op(name), now_ms=scene.now_ms)
    return scene.appender.append(FEED, [line], trace=trace)


@pytest.mark.parametrize("query", [{}, {"types": "video"}])
@pytest.mark.parametrize("template", ["", "/{{id}}"])
def test_6_9_who_asks_is_told_traces(scene: Scene, query: dict[str, str], template: str) -> None:
    """P6.9: from memory and from the log, filtered or not, with refs or not; others are not."""
    scene.configure(object_url=template)
    streams = [
        scene.streamer.open(FEED, START.encode(), {**query, "trace": asked})
        for asked in ("true", "false")
    ]
    traced(scene, "a")
    traced(scene, "b", trace="")
    for known in (False, True):
        tail = Tail()
        if known:
            traced(scene, "c")
            tail.start(2)
            tail.extend(scene.reader.read(FEED, 2))
        told, plain = (
            (chunk.text if known and (chunk := stream.take(tail)) else text(stream))
            for stream in streams
        )
        assert told.replace(f"traceparent: {TRACE}\n", "") == plain
        assert told.startswith(f"traceparent: {TRACE}\nid: ")
        assert told.count("traceparent") == 1
        assert "traceparent" not in plain


@pytest.mark.parametrize("query", [{}, {"types": "video"}])
@pytest.mark.parametrize("template", ["", "/{{id}}"])
def test_22_4_who_asks_is_sent_erasures(scene: Scene, query: dict[str, str], template: str) -> None:
    """P22.4: from memory and from the log, filtered or not, with refs or not; others are not."""
    scene.configure(object_url=template)
    asking, other = (
        scene.streamer.open(FEED, START.encode(), {**query, "erasures": asked})
        for asked in ("true", "false")
    )
    assert asking.text_key != other.text_key
    tail = Tail()
    for known in (False, True):
        entry = encode_entry(Entry("video", "a", "ann", "request 7"), now_ms=scene.now_ms)
        page = scene.appender.append(FEED, [entry])
        tail.start(page.number - 1)
        tail.extend(Run([page]))
        asked, told = (
            (chunk.text if known and (chunk := stream.take(tail)) else text(stream))
            for stream in (asking, other)
        )
        assert asked.count("event: erase\n") == asked.count("request 7") == 1
        assert told.count("event: delete\n") == 1 and "request 7" not in told
        assert not template or refs_in(asked) == refs_in(told) == ["/a"]


def test_6_9_the_switch_is_true_or_false(scene: Scene) -> None:
    """P6.9: it has the values of `leave`."""
    with pytest.raises(InvalidFilter) as refused:
        scene.streamer.open(FEED, "", {"trace": "1"})
    assert refused.value.field == "trace"


def tail_of(*numbers: int, bytes_max: int = limits.TAIL_BYTES_MAX) -> Tail:
    """Return a tail that was started before the first of the pages *numbers* and has read them."""
    tail = Tail(bytes_max=bytes_max)
    tail.start(numbers[0] - 1)
    tail.extend(Run([page(number, line(f"x{number}")) for number in numbers]))
    return tail


def test_pages_before_an_erasure_are_read_from_the_log() -> None:
    """The cache has them as they were; a page that only looks like one drops nothing."""
    tail = Tail()
    entry = encode_entry(Entry("video", "x", "ann", "why"), now_ms=NOW)
    pages = page(1, line("x")), page(2, line("y"), entry), page(3, entry, line("x")), page(4)
    tail.extend(Run(list(pages[:2])))
    assert tail.reaches(0)
    tail.extend(Run(list(pages[2:])))
    assert not tail.reaches(1)
    assert [each.number for each in tail.after(2)] == [3, 4]
    tail.extend(Run([page(5, entry)]))
    assert not tail.reaches(3) and [each.number for each in tail.after(4)] == [5]


def numbers(tail: Tail, behind: int) -> list[int]:
    return [each.number for each in tail.after(behind)]


def test_it_gives_what_follows() -> None:
    """Pages come in order, from any page in the tail; a reader at its end or after it gets none."""
    tail = tail_of(5, 6, 7)

    assert tail.last == 7
    assert [tail.reaches(number) for number in (3, 4, 7, 9)] == [False, True, True, True]
    assert numbers(tail, 4) == [5, 6, 7]
    assert numbers(tail, 6) == [7]
    assert numbers(tail, 7) == numbers(tail, 9) == []


def test_it_goes_on_after_a_jump() -> None:
    """Skipped numbers take no place in it."""
    tail = Tail()
    tail.start(4)
    jumped = jump(6, 9_000, at_ms=NOW, expires_ms=0)
    tail.extend(Run([page(5, line("x5")), jumped, page(9_001, line("y"))]))

    assert [tail.reaches(number) for number in (3, 4, 6, 9_000)] == [False, True, True, True]
    assert numbers(tail, 4) == [5, 9_000, 9_001]
    assert numbers(tail, 6) == [9_000, 9_001]
    assert numbers(tail, 9_000) == [9_001]


def test_it_forgets_the_first_pages() -> None:
    """Its memory is bounded; readers of older pages read the log."""
    one = tail_of(1)
    tail = tail_of(*range(1, 100), bytes_max=10 * one._size)

    assert tail.last == 99
    assert numbers(tail, 90) == list(range(91, 100))
    assert not tail.reaches(80)


def test_a_page_above_the_bound_is_not_held() -> None:
    """The tail's end moves past it all the same, so that every stream reads the page from the
    log."""
    tail = tail_of(1, bytes_max=100)

    assert (tail.last, tail.reaches(0), numbers(tail, 1)) == (1, False, [])


def test_it_takes_no_hole() -> None:
    """A page that does not follow is a mistake of the caller."""
    tail = tail_of(1, 2)
    with pytest.raises(AssertionError):
        tail.extend(Run([page(4, line())]))


def test_nothing_new() -> None:
    """This is so before a hole, and at the end of the log."""
    assert not tail_of(1).extend(Run([], waiting=True))
    assert not tail_of(1).extend(Run([], floor=1))


def test_a_log_trimmed_above_its_end() -> None:
    """The tail resumes at the floor. Readers below the floor get no pages, and learn it from the
    log."""
    tail = tail_of(1, 2)

    assert tail.extend(Run([], trimmed=True, floor=9))
    assert (tail.last, tail.reaches(2), numbers(tail, 8)) == (8, False, [])


def test_a_damaged_page_moves_no_stream(scene: Scene) -> None:
    """The stream would otherwise skip the pages that its client has not received."""
    stream = scene.streamer.open(FEED, "now", {"types": "video"})
    begun, tail = stream.progress, Tail()
    tail.extend(Run([Page(1, '{"event":"update","type":"video"', "", NOW)]))

    with pytest.raises(StorageFailed):
        stream.select(tail)
    assert stream.progress is begun


def test_text_is_made_once() -> None:
    """All who take the same operations of a page get the very same string."""
    tail = Tail()
    tail.extend(Run([Page(1, encode([line(f"x{at}") for at in range(100)]), "", NOW)]))
    (page,) = tail.after(0)

    parts = [page_part(page, EVERYTHING), page_part(page, parse("t,video", None))]

    assert parts[0].sse() is parts[1].sse()
    assert [event.id[-6:] for event in parts[0].events()][-1] == "000063"


@pytest.mark.parametrize(
    "cursor", ["0", "{first}000000", START.encode()], ids=["copying", "within a page", "before it"]
)
def test_who_is_not_in_step_reads(scene: Scene, cursor: str) -> None:
    """A stream reads for itself while it copies, if it is within a page, and if it is before the
    tail."""
    first = scene.post(op("a"), op("b"))
    scene.post(op("c"))
    scene.project()
    stream = scene.streamer.open(FEED, cursor.format(first=first.id_prefix))

    assert stream.take(tail_of(2)) is None
    assert stream.next().text


def test_live_is_announced_by_the_stores(scene: Scene) -> None:
    """A copy that has reached the log uses no pages from memory before its `live`."""
    scene.post(op("a", "insert"))
    scene.project()
    stream = scene.streamer.open(FEED, "1")
    while stream.progress.copying:
        stream.next()

    assert stream.take(tail_of(1)) is None
    assert "event: live" in stream.next().text
    assert stream.take(tail_of(1)) is not None


@pytest.mark.parametrize("wanted", [EVERYTHING, Filter(types=frozenset({"video"}))])
@pytest.mark.parametrize("seed", range(30))
def test_streams_tell_the_log_once_and_in_order(wanted: Filter, seed: int) -> None:
    """No stream has a gap or a repeat, in any order of reads, with holes, fillers and a short
    tail."""
    chance = random.Random(seed)
    scene, tail = Scene(), Tail(bytes_max=chance.choice((0, 3_000, 10**6)))
    scene.post(op("before"))
    streams = [_now(scene, wanted) for _ in range(3)]
    received: list[str] = ["" for _ in streams]
    tail.start(streams[0].progress.page)
    posted: list[str] = []
    for round in range(60):
        if chance.random() < 0.5:
            _append(scene, chance, posted, f"o{round}")
        if chance.random() < 0.3:
            tail.extend(scene.reader.read(FEED, tail.last))
        at = chance.randrange(len(streams))
        received[at] += _turn(streams[at], tail, chance)
    _fill_holes(scene)
    for at, stream in enumerate(streams):
        received[at] += _turn(stream, Tail(), chance) + stream.next().text

    for text in received:
        assert [part.partition('"')[0] for part in text.split('"id":"')[1:]] == posted


def _now(scene: Scene, wanted: Filter) -> Stream:
    return scene.streamer.open(FEED, "", {"types": ",".join(sorted(wanted.types or ()))})


def _append(scene: Scene, chance: random.Random, posted: list[str], name: str) -> None:
    """Append a page, or take a number that is never written."""
    if chance.random() < 0.2:
        scene.log.take(FEED)
        return
    scene.post(op(name))
    posted.append(name)


def _turn(stream: Stream, tail: Tail, chance: random.Random) -> str:
    chunk = stream.take(tail) if chance.random() < 0.8 else None
    return (chunk or stream.next()).text


def _fill_holes(scene: Scene) -> None:
    scene.now_ms += limits.HOLE_GRACE_MS
    while scene.filler.close_hole(FEED, scene.reader.frontier(FEED, 0).page):
        pass
