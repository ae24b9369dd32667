"""The ledger of a load: each way in which a feed could break its promises is seen."""

from __future__ import annotations

import re

import pytest

from bench.loading import ledger
from bench.loading.ledger import Ledger, Plan, Reader
from tidings.client.events import Event

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
