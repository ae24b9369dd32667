"""The tail: the last pages of a log in memory, read once for everybody who waits there."""

from __future__ import annotations

import random

import pytest

from tests.unit.core.scene import FEED, NOW, Scene, line, op, page
from tidings.core import limits
from tidings.core.catchup.sse import Stream, Tail
from tidings.core.log.reader import Run
from tidings.core.model.cursors import START
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.model.pages import Page, encode, jump


def tail_of(*numbers: int, bytes_max: int = limits.TAIL_BYTES_MAX) -> Tail:
    """One that was started before the first of the pages *numbers* and read them."""
    tail = Tail(bytes_max=bytes_max)
    tail.start(numbers[0] - 1)
    tail.extend(Run([page(number, line(f"x{number}")) for number in numbers]))
    return tail


def numbers(tail: Tail, behind: int) -> list[int]:
    return [held.page.number for held in tail.behind(behind)]


def test_it_gives_what_follows() -> None:
    """In order, from any page it reaches back to; nothing to who is at its end or beyond."""
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
    """Its memory is bounded; who stands further back has to read."""
    one = tail_of(1)
    tail = tail_of(*range(1, 100), bytes_max=10 * one._size)

    assert tail.last == 99
    assert numbers(tail, 90) == list(range(91, 100))
    assert not tail.reaches(80)


def test_a_page_above_the_bound_is_not_held() -> None:
    """It moves the end all the same, so that everybody reads it."""
    tail = tail_of(1, bytes_max=100)

    assert (tail.last, tail.reaches(0), numbers(tail, 1)) == (1, False, [])


def test_it_takes_no_hole() -> None:
    """A page that does not follow is a mistake of the caller."""
    tail = tail_of(1, 2)
    with pytest.raises(AssertionError):
        tail.extend(Run([page(4, line())]))


def test_nothing_new() -> None:
    """Neither before a hole nor at the end of the log."""
    assert not tail_of(1).extend(Run([], waiting=True))
    assert not tail_of(1).extend(Run([], floor=1))


def test_a_log_trimmed_above_its_end() -> None:
    """It goes on at the floor and gives nothing to those below, who learn it from the log."""
    tail = tail_of(1, 2)

    assert tail.extend(Run([], trimmed=True, floor=9))
    assert (tail.last, tail.reaches(2), numbers(tail, 8)) == (8, False, [])


def test_text_is_made_once() -> None:
    """All who take an unfiltered page get the very same string."""
    tail = Tail()
    tail.extend(Run([Page(1, encode([line(f"x{at}") for at in range(100)]), "", NOW)]))
    (held,) = tail.behind(0)

    assert held.part.sse() is held.part.sse()
    assert [event.id[-6:] for event in held.part.events()][-1] == "000063"


@pytest.mark.parametrize(
    "cursor",
    ["0", "{first}000000", START.encode()],
    ids=["copying", "within a page", "before it"],
)
def test_who_is_not_in_step_reads(scene: Scene, cursor: str) -> None:
    """A copy, a place within a page and one before the tail are no business of the tail."""
    first = scene.post(op("a"), op("b"))
    scene.post(op("c"))
    scene.project()
    stream = scene.streamer.open(FEED, cursor.format(first=first.id_prefix))

    assert stream.take(tail_of(2)) is None
    assert stream.next().text


def test_live_is_announced_by_the_stores(scene: Scene) -> None:
    """A copy that has reached the log takes nothing from memory before it said `live`."""
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
    """Whoever reads when, with holes, fillers and a tail that is short: never a gap or a repeat."""
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
    """A page, or a number whose writer is never seen again."""
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
