"""The cursor of a consumer, whatever is acknowledged when."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tidings.client.consumer import Group, InFlight

LIMIT = 8


@dataclass
class Handed:
    """One thing that came: an event with its group, or a cursor that moved (without one)."""

    id: str
    group: Group | None
    acked: bool


def _check(came: list[Handed], before: str, now: str) -> None:
    """What was saved is safe, and no further back than it has to be."""
    ids = ["start", *(each.id for each in came)]
    passed = len(ids) - 1 - ids[::-1].index(now)  # how many came up to the last one of that id
    if now != before:
        assert all(each.acked for each in came[:passed])
    assert all(each.acked for each in came[: ids.index(now)])
    oldest = next((at for at, each in enumerate(came) if not each.acked), len(came))
    if oldest == len(came) or came[oldest].id != ids[oldest]:
        assert now == ids[oldest]


def test_acks_in_any_order_catch_up() -> None:
    """The oldest holds the cursor back; acknowledged, it lets all behind it count."""
    flight = InFlight("start", LIMIT)
    first, second, third = (flight.add(name) for name in "abc")
    flight.ack(third)
    flight.ack(second)
    assert flight.cursor == "start"

    flight.ack(first)
    assert flight.cursor == "c"


def test_rows_of_one_bucket_are_passed_together() -> None:
    """P6.3: the id of a bucket counts when each of its rows is acknowledged."""
    flight = InFlight("start", LIMIT)
    rows = [flight.add("bucket") for _ in range(3)]
    flight.ack(rows[2])
    flight.ack(rows[0])
    assert flight.cursor == "start"

    flight.ack(rows[1])
    assert flight.cursor == "bucket"


def test_an_event_without_an_id_keeps_the_last_one() -> None:
    """A `live` without one must not save nothing, from which a restart would begin at the end."""
    flight = InFlight("start", LIMIT)
    flight.ack(flight.add(""))
    assert flight.cursor == "start"

    for event_id in ("a", ""):
        flight.ack(flight.add(event_id))
    assert flight.cursor == "a"


def test_it_is_full() -> None:
    """By unacknowledged events, or by groups that wait behind one of them."""
    rows, groups = InFlight("start", LIMIT), InFlight("start", LIMIT)
    for _ in range(LIMIT):
        rows.add("bucket")
    oldest = groups.add("0")
    for number in range(1, LIMIT):
        groups.ack(groups.add(str(number)))
    assert (rows.is_full, groups.is_full) == (True, True)

    groups.ack(oldest)
    assert not groups.is_full


def test_moved_cursors_take_no_memory() -> None:
    """However long a rare filter waits behind one unacknowledged event."""
    flight = InFlight("start", LIMIT)
    event = flight.add("a")
    for number in range(1000):
        flight.move(str(number))
    assert not flight.is_full

    flight.ack(event)
    assert flight.cursor == "999"


@given(st.data())
def test_the_cursor_never_passes_an_unacknowledged_event(data: st.DataObject) -> None:
    """For any events, buckets, moves and order of acknowledgements; and it reaches the end."""
    flight = InFlight("start", 10_000)
    came: list[Handed] = []
    for number in range(data.draw(st.integers(1, 30))):
        came.append(_next(flight, came, number, data))
        waiting = [each for each in came if not each.acked]
        if waiting:
            for each in data.draw(st.lists(st.sampled_from(waiting), unique_by=id, max_size=3)):
                _ack(flight, each, came)
    for each in data.draw(st.permutations([each for each in came if not each.acked])):
        _ack(flight, each, came)

    assert flight.cursor == came[-1].id


def _next(flight: InFlight, came: list[Handed], number: int, data: st.DataObject) -> Handed:
    kind = data.draw(st.sampled_from(["event", "event", "row", "move"]))
    if kind == "move":
        flight.move(f"moved {number}")
        return Handed(f"moved {number}", None, True)
    repeats = kind == "row" and came and came[-1].group is not None
    event_id = came[-1].id if repeats else f"event {number}"
    return Handed(event_id, flight.add(event_id), False)


def _ack(flight: InFlight, each: Handed, came: list[Handed]) -> None:
    assert each.group is not None
    before = flight.cursor
    flight.ack(each.group)
    each.acked = True
    _check(came, before, flight.cursor)
