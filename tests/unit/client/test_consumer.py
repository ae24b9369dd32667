"""A consumer: its deliveries, and its cursor for any order of acknowledgements."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.oplog.wire import until
from tests.unit.client.fake_feed import Running, event_id
from tidings.client import AccessDenied, Consumer, Delivery, Refused, WrongState, WrongUrl
from tidings.client.consumer import Group, InFlight
from tidings.client.reconnect import Transport

LIMIT = 8


@dataclass
class Handed:
    """One thing that came: an event with its group, or a cursor that moved (without one)."""

    id: str
    group: Group | None
    acked: bool


def _check(came: list[Handed], before: str, now: str) -> None:
    """Check that the saved cursor is safe, and no earlier than necessary."""
    ids = ["start", *(each.id for each in came)]
    passed = len(ids) - 1 - ids[::-1].index(now)  # how many came up to the last one of that id
    if now != before:
        assert all(each.acked for each in came[:passed])
    assert all(each.acked for each in came[: ids.index(now)])
    oldest = next((at for at, each in enumerate(came) if not each.acked), len(came))
    if oldest == len(came) or came[oldest].id != ids[oldest]:
        assert now == ids[oldest]


def test_acks_in_any_order_catch_up() -> None:
    """The oldest event holds the cursor back; once it is acknowledged, all later ones count."""
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

    for name in ("a", ""):
        flight.ack(flight.add(name))
    assert flight.cursor == "a"


def test_it_is_full() -> None:
    """Unacknowledged events fill it, and so do groups that wait for one of them."""
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
    """This holds however long a rare filter waits after one unacknowledged event."""
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


TRANSPORTS: list[Transport] = ["ws", "sse"]
both = pytest.mark.parametrize("transport", TRANSPORTS)
WITHIN_S = 180.0
QUIET_S = 0.3  # an event that has not arrived by then was not sent: loopback takes a millisecond


def _video(number: int, event: str = "insert") -> dict[str, object]:
    return {"event": event, "type": "video", "id": f"x{number}", "parents": []}


def _take(consumer: Consumer, count: int) -> list[Delivery]:
    return list(islice(consumer, count))


class Following(threading.Thread):
    """Takes what *consumer* hands out, without acknowledging."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__(daemon=True)
        self.found: list[Delivery] = []
        self._consumer = consumer
        self.start()

    def run(self) -> None:
        for delivery in self._consumer:
            self.found.append(delivery)


@both
def test_a_copy_then_the_log(server: Running, tmp_path: Path, transport: Transport) -> None:
    """O74: reset, rows, live, operations; the file holds the last one acknowledged."""
    server.append(_video(1), _video(2))
    state = tmp_path / "seen"
    with Consumer(
        server.url, transport=transport, state_file=state, allow_replication=True
    ) as consumer:
        assert state.read_text() == "0"
        names = []
        for delivery in consumer:
            names.append(delivery.name)
            delivery.ack()
            if delivery.name == "live":
                server.append(_video(3, "update"))
            elif delivery.name == "update":
                break

    assert names == ["reset", "insert", "insert", "live", "update"]
    assert state.read_text() == event_id(2)


@both
def test_a_restart_begins_behind_the_oldest_unacknowledged(
    server: Running, tmp_path: Path, transport: Transport
) -> None:
    """O75: with acknowledgements out of order nothing is lost; unacknowledged events come again."""
    for number in range(5):
        server.append(_video(number))
    (tmp_path / "seen").write_text(event_id(0))

    with Consumer(server.url, transport=transport, state_file=tmp_path / "seen") as consumer:
        first = _take(consumer, 5)
        for at in (0, 1, 3, 4):
            first[at].ack()
        assert consumer.cursor == event_id(2)

    with Consumer(server.url, transport=transport, state_file=tmp_path / "seen") as consumer:
        assert [delivery.id for delivery in _take(consumer, 3)] == [event_id(n) for n in (3, 4, 5)]


@both
def test_what_is_in_flight_survives_a_cut(server: Running, transport: Transport) -> None:
    """O78: connected again after 1 to 32 s, each operation once; a late ack still counts."""
    lost: list[float] = []
    server.append(_video(0))
    with Consumer(
        server.url,
        transport=transport,
        cursor=event_id(0),
        on_lost=lambda error, delay_s: lost.append(delay_s),
    ) as consumer:
        (before,) = _take(consumer, 1)
        server.feed.faults.repeat = 1
        server.cut()
        server.append(_video(1))
        (after,) = _take(consumer, 1)
        after.ack()
        assert (after.id, consumer.cursor) == (event_id(2), event_id(0))
        before.ack()
        assert consumer.cursor == event_id(2)

    assert 1 <= lost[0] <= 2


@both
def test_a_reset_is_waited_for(server: Running, transport: Transport) -> None:
    """Nothing of the copy is handed out before the old data is known to be gone."""
    server.append(_video(1))
    with Consumer(server.url, transport=transport, cursor="0") as consumer:
        following = Following(consumer)
        until(lambda: following.found)
        time.sleep(QUIET_S)
        assert [delivery.name for delivery in following.found] == ["reset"]

        following.found[0].ack()
        until(lambda: len(following.found) == 3)


def test_a_reset_alone_is_no_progress(server: Running, tmp_path: Path) -> None:
    """P6.3: rows that were handled after the last save may be deleted before the restart: it starts
    over.
    """
    server.append(_video(1))
    for _ in range(2):
        with Consumer(server.url, state_file=tmp_path / "seen", allow_replication=True) as consumer:
            reset = next(consumer)
            reset.ack()
            assert (reset.name, consumer.cursor) == ("reset", "1")
        assert (tmp_path / "seen").read_text() == "0"


@both
def test_reading_stops_while_too_much_is_in_flight(server: Running, transport: Transport) -> None:
    """Memory is bounded: a slow consumer holds *in_flight_max* events."""
    server.append(*[_video(number) for number in range(20)])
    with Consumer(server.url, transport=transport, cursor=event_id(0), in_flight_max=5) as consumer:
        following = Following(consumer)
        until(lambda: len(following.found) == 5)
        time.sleep(QUIET_S)
        assert len(following.found) == 5

        for delivery in following.found[1:5]:
            delivery.ack()
        time.sleep(QUIET_S)
        assert len(following.found) == 5
        following.found[0].ack()
        while len(following.found) < 20:
            for delivery in list(following.found):
                delivery.ack()
        assert [delivery.id for delivery in following.found] == [
            event_id(1, slot) for slot in range(20)
        ]


def test_an_ack_counts_once(server: Running) -> None:
    """A second acknowledgement does not count for another event."""
    server.append(_video(1), _video(2))
    with Consumer(server.url, cursor=event_id(0)) as consumer:
        first, _ = _take(consumer, 2)
        first.ack()
        first.ack()
        assert consumer.cursor == event_id(1, 0)


@both
def test_the_cursor_is_saved_while_nothing_comes(
    server: Running, tmp_path: Path, transport: Transport
) -> None:
    """It is saved once a second, without waiting for an event: a kill repeats at most a second."""
    server.append(_video(1))
    state = tmp_path / "seen"
    with Consumer(
        server.url, transport=transport, cursor=event_id(0), state_file=state
    ) as consumer:
        (delivery,) = _take(consumer, 1)
        delivery.ack()
        until(lambda: state.exists() and state.read_text() == event_id(1))


def test_from_now_the_place_is_kept(server: Running, tmp_path: Path) -> None:
    """Closed before the first event, the next start misses nothing that came in between."""
    state = tmp_path / "seen"
    server.append(_video(1))
    with Consumer(server.url, state_file=state) as consumer:
        Following(consumer)
        until(lambda: consumer.cursor != "now")
    server.append(_video(2))
    with Consumer(server.url, state_file=state) as consumer:
        assert _take(consumer, 1)[0].id == event_id(2)


@both
def test_closing_ends_whoever_waits(server: Running, transport: Transport) -> None:
    """A close works at once and from any thread; a later iteration ends too, and an ack is
    harmless."""
    server.append(_video(1))
    consumer = Consumer(server.url, transport=transport, cursor=event_id(0))
    followings = [Following(consumer) for _ in range(3)]
    until(lambda: any(following.found for following in followings))
    consumer.close()
    for following in followings:
        following.join(WITHIN_S)
        assert not following.is_alive()

    assert list(consumer) == []
    for following in followings:
        for delivery in following.found:
            delivery.ack()
    consumer.close()


def test_closing_while_nobody_answers() -> None:
    """It closes between two attempts as well, and from the callback of a failure."""
    consumer = Consumer("http://127.0.0.1:9", on_lost=lambda error, delay_s: consumer.close())

    assert list(consumer) == []


@both
def test_refusals(server: Running, transport: Transport) -> None:
    """O76: the iteration raises them once, and then ends."""
    server.feed.faults.refuse = [(401, "wrong_password"), (404, "unknown_feed")]
    denied, refused = (Consumer(server.url, transport=transport) for _ in range(2))

    with pytest.raises(AccessDenied, match="invalid credentials"):
        next(denied)
    with pytest.raises(Refused, match="unknown_feed"):
        next(refused)
    assert list(denied) == []


def test_a_state_that_cannot_be_saved(server: Running, tmp_path: Path) -> None:
    """It ends the iteration: a consumer that continued would repeat more and more events."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "seen").write_text(event_id(0))
    consumer = Consumer(server.url, state_file=folder / "seen")
    (folder / "seen").unlink()
    folder.rmdir()
    server.append(_video(1))

    with pytest.raises(WrongState, match="cannot write"):
        for delivery in consumer:
            delivery.ack()


def test_what_is_wrong_from_the_start(tmp_path: Path) -> None:
    """The error is raised by the constructor, not in a thread later."""
    (tmp_path / "diary").write_text("dear diary")

    with pytest.raises(WrongUrl):
        Consumer("ftp://host")
    with pytest.raises(WrongState):
        Consumer("http://host", state_file=tmp_path / "diary")
    with pytest.raises(ValueError, match="in_flight_max must be at least 1, not 0"):
        Consumer("http://host", in_flight_max=0)


@both
def test_async_for(server: Running, tmp_path: Path, transport: Transport) -> None:
    """The same in an event loop, without a thread; many consumers share it."""
    server.append(_video(1), _video(2))
    state = tmp_path / "seen"

    async def consume(**options: Any) -> list[str]:
        names = []
        async with Consumer(server.url, transport=transport, cursor="0", **options) as consumer:
            async for delivery in consumer:
                names.append(delivery.name)
                delivery.ack()
                if delivery.name == "live":
                    break
        assert [left async for left in consumer] == []
        return names

    async def all_of_them() -> list[list[str]]:
        return list(await asyncio.gather(consume(state_file=state), consume(), consume()))

    assert asyncio.run(all_of_them()) == [["reset", "insert", "insert", "live"]] * 3
    assert state.read_text() == event_id(1, 0x7FFFFF)


@both
def test_async_refusals_and_closing(server: Running, transport: Transport) -> None:
    """A refusal is raised once; closing ends a task that waits, across a cut as well."""

    async def refused() -> None:
        server.feed.faults.refuse = [(403, "")]
        with pytest.raises(AccessDenied):
            await anext(Consumer(server.url, transport=transport))

    async def closed() -> int:
        consumer = Consumer(server.url, transport=transport, cursor=event_id(0))

        async def count() -> int:
            return len([delivery async for delivery in consumer])

        counting = asyncio.create_task(count())
        server.append(_video(1))
        await asyncio.sleep(QUIET_S)
        server.cut()
        server.append(_video(2))
        await asyncio.sleep(2.5)
        await consumer.aclose()
        return await asyncio.wait_for(counting, WITHIN_S)

    asyncio.run(refused())
    assert asyncio.run(closed()) == 2


def test_imported_when_used() -> None:
    """`import tidings.client` costs nothing; a name brings what it needs and no more."""
    code = (
        "import sys, tidings.client as c; heavy = ('httpx', 'websockets', 'asyncio', 'click')\n"
        "print([m for m in heavy if m in sys.modules]); c.follow, c.Event, c.Refused\n"
        "print([m for m in heavy if m in sys.modules]); c.Consumer\n"
        "print([m for m in heavy if m in sys.modules]); print(hasattr(c, 'Nothing'))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.splitlines() == ["[]", "[]", "['asyncio']", "False"]
