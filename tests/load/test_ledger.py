"""The ledger of a load, its schedule, and the faults that it finds."""

from __future__ import annotations

import asyncio
import re
import selectors
from collections.abc import Callable, Mapping, Sequence

import pytest

from bench.loading import ledger
from bench.loading.clients import Producer
from bench.loading.ledger import Ledger, Plan, Reader
from bench.loading.recorder import ACKED, ANSWERED, Latencies, Recorder
from tidings.client.errors import Lost
from tidings.client.events import Event
from tidings.client.poster import encode

PLAN = Plan("r", duration_s=10, objects=3)


def _id(place: int) -> str:
    return f"{place:024x}"


def _event(place: int, serial: int) -> Event:
    """Operation *serial* at *place*, as a consumer receives it."""
    data = PLAN.operation(serial)
    return Event(_id(place), data.pop("event"), data | {"timestamp": "2026-01-01T00:00:00Z"})


@pytest.fixture
def book() -> Ledger:
    return Ledger(PLAN, _id(0))


def _receives(book: Ledger, reader: Reader, *serials: int) -> None:
    for serial in serials:
        book.hears(reader, _event(serial + 1, serial))


def _acks(book: Ledger, *serials: int) -> None:
    book.acknowledges(serials, [_id(serial + 1) for serial in serials])


def _violations(book: Ledger) -> str:
    book.closes()
    return " | ".join(book.violations.told)


def test_all_is_well(book: Ledger) -> None:
    """Two that receive everything, acknowledged before or after: no violation."""
    one, two = book.joins("one"), book.joins("two")
    _acks(book, 0, 1)
    _receives(book, one, 0, 1, 2)
    _receives(book, two, 0, 1, 2)
    _acks(book, 2)

    assert (_violations(book), book.unheard, book.behind, book.end) == ("", 0, 0, 3)


def test_the_first_to_hear_may_be_another_one_each_time(book: Ledger) -> None:
    """The reader that is ahead determines the next operation."""
    one, two = book.joins("one"), book.joins("two")
    _receives(book, one, 0)
    _receives(book, two, 0, 1, 2)
    _receives(book, one, 1, 2, 3)

    assert (book.end, book.behind) == (4, 1)
    _receives(book, two, 3)
    assert _violations(book) == ""


def test_places_are_ordered_by_page_and_slot(book: Ledger) -> None:
    """A page may have been committed in an earlier second than the one below it."""
    one = book.joins("one")
    for second, serial in ((9, 0), (8, 1)):
        event = _event(serial + 1, serial)
        late = f"{second:08x}{event.id[8:]}"
        book.hears(one, Event(late, event.name, event.data))
        book.acknowledges([serial], [late])

    assert (_violations(book), book.end) == ("", 2)


@pytest.mark.parametrize(
    ("one", "two", "told"),
    [
        pytest.param([0, 1, 2, 3], [0, 2, 3], "two heard 3 where 2 stands", id="missed"),
        pytest.param([0, 2], [0, 1, 2], "two heard 2 where 3 stands", id="missed-by-the-first"),
        pytest.param([0, 1], [], "two misses the last 2", id="missed-at-the-end"),
        pytest.param([0, 1, 0], [0, 1], "one heard 1 behind 2", id="repeated"),
        pytest.param(
            [0, 1],
            [1, 0],
            "two heard 2 where 1 stands | two heard 1 behind 2",
            id="in-another-order",
        ),
    ],
)
def test_what_consumers_do_not_hear_alike_is_seen(
    book: Ledger, one: list[int], two: list[int], told: str
) -> None:
    """Each once, by the next operation received, or at the end; places are shown short."""
    readers = book.joins("one"), book.joins("two")
    for reader, serials in zip(readers, (one, two), strict=True):
        _receives(book, reader, *serials)

    assert re.sub(r"\b0+(?=\d)", "", _violations(book)) == told


def test_what_nobody_hears_is_seen(book: Ledger) -> None:
    """If it was acknowledged."""
    one = book.joins("one")
    _acks(book, 0, 1)
    _receives(book, one, 0)

    assert book.unheard == 1
    assert _violations(book) == f"1 was acknowledged as {_id(2)} and never heard"


def test_an_operation_that_is_appended_twice_is_seen(book: Ledger) -> None:
    """Under another id, as a request that is tried again without a key would be."""
    one = book.joins("one")
    _receives(book, one, 0)
    book.hears(one, _event(5, 0))

    assert "twice" in _violations(book)


def test_an_altered_operation_is_seen(book: Ledger) -> None:
    """By the first that receives it, against the post; by others, against the first."""
    one, two = book.joins("one"), book.joins("two")
    event = _event(1, 0)
    altered = Event(event.id, event.name, event.data | {"id": "another"})
    book.hears(one, altered)
    _receives(book, one, 0)
    book.hears(two, altered)

    assert book.violations.count == 2


def test_an_operation_with_another_id_than_acknowledged_is_seen(book: Ledger) -> None:
    """In whichever order the two come to be known."""
    one = book.joins("one")
    book.acknowledges([0], [_id(7)])
    _receives(book, one, 0, 1)
    book.acknowledges([1], [_id(8)])

    assert book.violations.count == 2


def test_a_reset_in_the_log_is_seen(book: Ledger) -> None:
    """A consumer with a cursor of today never gets a reset."""
    book.hears(book.joins("one"), Event("1", "reset"))

    assert "reset" in _violations(book)


def test_the_state_is_compared_with_the_fold(book: Ledger) -> None:
    """An object too many, one too few, an older operation: each one is reported."""
    one = book.joins("one")
    _receives(book, one, *range(20))
    wanted = {key: entry.serial for key, entry in book.objects.items()}

    book.compares(wanted)
    assert book.violations.count == 0
    first = next(iter(wanted))
    book.compares({key: serial for key, serial in wanted.items() if key != first})
    book.compares(wanted | {first: -1})
    book.compares(wanted | {"alien": 5})
    assert book.violations.count == 3


def test_who_is_gone_for_ever_holds_nothing_back(
    book: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries that all others have received are dropped, so that a long run stays small."""
    monkeypatch.setattr(ledger, "_SPARE", 10)
    one, two = book.joins("one"), book.joins("two")
    _receives(book, one, *range(100))
    assert book.behind == 100
    book.leaves(two)
    fresh = book.joins("fresh")
    _receives(book, one, *range(100, 120))
    _receives(book, fresh, *range(100, 120))

    assert (_violations(book), book.behind, book.end) == ("", 0, 120)
    assert len(book._entries) <= 20


ANSWER_S = 0.002
STALLED = range(1, 2)  # from the first second to the second one


class _Jumping(selectors.SelectSelector):
    """Time passes at once when all wait for it."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """An event loop in which nothing takes time but waiting."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


class Server:
    """Answers within 2 ms, but for one second without any answers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._posts = 0

    async def post(
        self, lines: Sequence[bytes], key: str, on_lost: Callable[[], None]
    ) -> list[str]:
        if STALLED.start <= self._clock() < STALLED.stop:
            await asyncio.sleep(STALLED.stop - self._clock())
        await asyncio.sleep(ANSWER_S)
        self._posts += len(lines)
        return [f"{self._posts + at:024x}" for at in range(len(lines))]


class Gone(Server):
    """Never answers again."""

    async def post(
        self, lines: Sequence[bytes], key: str, on_lost: Callable[[], None]
    ) -> list[str]:
        on_lost()
        raise Lost("gone")


def _posted(plan: Plan, server: Callable[[Callable[[], float]], Server] = Server) -> Recorder:
    recorder, ledger, loop = Recorder(), Ledger(plan, f"{0:024x}"), Loop()

    async def all_of_it() -> None:
        sender = server(loop.time)
        producers = [Producer(plan, each, sender, loop.time) for each in range(plan.producers)]
        await asyncio.gather(*(each.run(0.0, ledger, recorder) for each in producers))
        recorder.count("ms", int(loop.time() * 1000))

    loop.run_until_complete(all_of_it())
    loop.close()
    return recorder


def _counts(recorder: Recorder) -> Mapping[str, int]:
    return recorder.current.counts


def test_a_server_that_stands_still_shows_in_the_percentiles() -> None:
    """A third of three seconds of load falls into the second without answers: it was due, and late.

    From when they were sent only one request of each producer was slow: that figure hides it.
    """
    recorder = _posted(Plan("r", producers=4, rate=100, duration_s=3))
    due, sent = recorder.whole(ACKED), recorder.whole(ANSWERED)

    assert due.count == sent.count == 300
    assert due.at(50) < 0.01
    assert due.at(75) > 0.2
    assert 0.6 < due.at(90) < 0.8
    assert sent.at(98) < 0.01
    assert 0.9 < sent.longest < 1.1


def test_what_waited_is_sent_at_once() -> None:
    """The schedule continues in the meantime, and is kept again as soon as answers arrive."""
    recorder = _posted(Plan("r", producers=4, rate=100, duration_s=3))

    assert _counts(recorder)["acknowledged"] == 300
    assert 2_900 <= _counts(recorder)["ms"] <= 3_010


def test_a_slow_answer_does_not_slow_the_rate() -> None:
    """Producers that cannot keep up show it as operations that come later and later."""
    plan = Plan("r", producers=1, rate=1_000, duration_s=1)
    due = _posted(plan).whole(ACKED)

    assert due.count == 1_000
    assert due.longest > 1.5  # 1,000 answers of 2 ms, and the second without any


def test_what_nobody_answers_is_counted() -> None:
    """Whether it was appended is not known: it is neither acknowledged nor lost."""
    counts = _counts(_posted(Plan("r", rate=10, duration_s=1), Gone))

    assert (counts["unanswered"], counts["acknowledged"], counts["retries"]) == (10, 0, 10)


def test_every_operation_is_sent_by_one_producer() -> None:
    """Together the producers send each operation once, and each of them in order."""
    plan = Plan("r", producers=3, rate=10, batch=4, duration_s=5)
    shares = [
        [serial for request in plan.shares(producer) for serial in request] for producer in range(3)
    ]

    assert sorted(serial for share in shares for serial in share) == list(range(plan.total))
    assert all(share == sorted(share) for share in shares)


def test_requests_are_due_at_the_rate() -> None:
    """The operations of a request are due together, a request each batch / rate seconds."""
    plan = Plan("r", rate=10, batch=2, duration_s=1)

    assert [plan.due_s(serial) for serial in range(6)] == [0, 0, 0.2, 0.2, 0.4, 0.4]


def test_an_operation_is_the_same_each_time() -> None:
    """So that received events can be compared with posts; another seed makes others."""
    one, two = Plan("r"), Plan("r", seed=2)

    assert [one.operation(each) for each in range(50)] == [
        one.operation(each) for each in range(50)
    ]
    assert [one.operation(each) for each in range(50)] != [
        two.operation(each) for each in range(50)
    ]


def test_an_operation_has_the_size_that_was_asked_for() -> None:
    """About, as JSON; one that is asked to be tiny has no padding."""
    sized = len(encode(Plan("0" * 8, size=2_000).operation(123)))

    assert 1_900 < sized < 2_100
    assert len(encode(Plan("0" * 8, size=1).operation(123))) < 150


def test_latencies_out_of_range_are_counted() -> None:
    """Clamp them to an hour and to a microsecond."""
    found = Latencies([-0.5, 0.0, 100_000.0])

    assert found.count == 3
    assert found.at(50) < 0.001
    assert 3_560 < found.longest < 3_640
    assert (Latencies().at(99), Latencies().longest) == (0, 0)
