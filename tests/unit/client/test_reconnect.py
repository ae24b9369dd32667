"""Following a feed over both transports, with everything that goes wrong on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from tests.unit.client.fake_feed import Running, event_id
from tidings.client import reconnect
from tidings.client.errors import AccessDenied, Ended, Lost, Refused, WrongUrl
from tidings.client.events import Event, Moved, from_text
from tidings.client.reconnect import ResumeState, Transport, follow, resume
from tidings.client.retries import Backoff

TRANSPORTS: list[Transport] = ["ws", "sse"]
both = pytest.mark.parametrize("transport", TRANSPORTS)

ROW = "000000000000000005800003"


def _video(number: int, event: str = "insert", *parents: str) -> dict[str, object]:
    return {"event": event, "type": "video", "id": f"x{number}", "parents": list(parents)}


class Clock:
    """Replaces the module `time`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Trail:
    """Records the callbacks of `follow`; waiting takes no time."""

    def __init__(self) -> None:
        self.moved: list[str] = []
        self.lost: list[tuple[str, float]] = []

    def follow(
        self,
        server: Running,
        transport: Transport,
        cursor: str,
        types: tuple[str, ...] = (),
        parents: tuple[str, ...] = (),
        feed: str = "main",
    ) -> Iterator[Event]:
        return follow(
            server.url,
            transport=transport,
            cursor=cursor,
            feed=feed,
            types=types,
            parents=parents,
            on_moved=self.moved.append,
            on_lost=lambda lost, delay_s: self.lost.append((lost.reason, delay_s)),
            wait=lambda delay_s: None,
        )


@both
def test_a_copy_then_the_log(server: Running, transport: Transport) -> None:
    """P6.2: `0` brings reset, every live object, live, and then what happens."""
    server.append(_video(1), _video(2))
    server.append(_video(1, "delete"))
    events = Trail().follow(server, transport, "0")

    assert [event.name for event in islice(events, 3)] == ["reset", "insert", "live"]
    server.append(_video(3))
    assert next(events) == Event(
        event_id(3),
        "insert",
        {"timestamp": "2026-11-20T17:19:10.94Z", "parents": [], "type": "video", "id": "x3"},
    )


@both
def test_a_cut_loses_and_repeats_nothing(server: Running, transport: Transport) -> None:
    """P2.3, P6.4: cut again and again and resumed too early, each event is seen once, in order."""
    trail = Trail()
    server.append(_video(0))
    events = trail.follow(server, transport, event_id(1))
    server.feed.faults.repeat = 2
    seen = []
    for number in range(1, 6):
        server.append(_video(number))
        seen.append(next(events).id)
        server.cut()
        server.append(_video(100 + number))
        seen.append(next(events).id)

    assert seen == [event_id(page) for page in range(2, 12)]
    assert trail.lost


@both
def test_the_server_ends_connections(server: Running, transport: Transport) -> None:
    """P7.4, P8.7: a connection ended in good order is followed by the next, without a gap."""
    for number in range(9):
        server.append(_video(number))
    server.feed.faults.goodbye_after = 2
    trail = Trail()

    ids = [event.id for event in islice(trail.follow(server, transport, event_id(0)), 9)]

    assert ids == [event_id(page) for page in range(1, 10)]
    assert len(trail.lost) == 4


@both
def test_filters(server: Running, transport: Transport) -> None:
    """P7.2: types and parents narrow what is sent."""
    server.append(_video(1, "insert", "a"), _video(2, "insert", "b"))
    server.append({"event": "insert", "type": "channel", "id": "c", "parents": ["a"]})
    events = Trail().follow(server, transport, event_id(0), types=("video",), parents=("a", "z"))

    assert next(events).id == event_id(1)
    server.append({"event": "insert", "type": "channel", "id": "d", "parents": ["a"]})
    server.append(_video(3, "update", "a"))
    assert next(events).id == event_id(4)


@both
@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        *((status, Refused, "refused") for status in (400, 404, 406)),
        *((status, AccessDenied, "invalid credentials") for status in (401, 403)),
    ],
)
def test_O76_a_refusal_is_final(
    server: Running, transport: Transport, status: int, kind: type[Refused], sentence: str
) -> None:
    """An invalid request is not repeated; a wrong password has its own error."""
    server.feed.faults.refuse = [(status, "some_code")]

    with pytest.raises(kind, match=f"{sentence} \\({status} some_code\\): not for you") as caught:
        next(Trail().follow(server, transport, "now"))

    assert caught.value.status == status


@both
@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_an_outage_is_waited_out(server: Running, transport: Transport, status: int) -> None:
    """Too many requests and failures of the server are tried again."""
    server.append(_video(1))
    server.feed.faults.refuse = [(status, "unavailable")] * 3
    trail = Trail()

    assert next(trail.follow(server, transport, event_id(0))).id == event_id(1)
    assert len(trail.lost) == 3


def test_a_feed_that_does_not_exist(server: Running) -> None:
    """P8.2: an error in answer to a subscription is final."""
    with pytest.raises(Refused, match="no such feed"):
        next(Trail().follow(server, "ws", "now", feed="nowhere"))


def test_nobody_there() -> None:
    """A refused connection is tried again, with growing delays."""
    trail = Trail()
    tries = 0

    def count(lost: Lost, delay_s: float) -> None:
        nonlocal tries
        tries += 1
        trail.lost.append((lost.reason, delay_s))
        if tries == 8:
            raise KeyboardInterrupt

    events = follow("http://127.0.0.1:9", on_lost=count, wait=lambda delay_s: None)
    with pytest.raises(KeyboardInterrupt):
        next(events)

    floors = [1, 2, 4, 8, 16, 16, 16, 16]
    assert all(
        floor <= delay_s <= 2 * floor
        for (_, delay_s), floor in zip(trail.lost, floors, strict=True)
    )


def test_moved_cursors_are_resumed_from(server: Running) -> None:
    """P8.4: while nothing matches, the cursor moves, so a rare filter never starts far back."""
    trail = Trail()
    events = trail.follow(server, "ws", event_id(0), types=("rare",))
    for number in range(3):
        server.append(_video(number))
    server.append({"event": "insert", "type": "rare", "id": "r"})
    assert next(events).id == event_id(4)
    server.cut()
    server.append({"event": "insert", "type": "rare", "id": "s"})
    assert next(events).id == event_id(5)

    assert trail.moved
    assert server.feed.messages[-1]["cursor"] >= event_id(4)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8042", "ftp://host", "http://", "http://h:x", "", "http://h:99999"]
)
def test_no_address(url: str) -> None:
    for transport in TRANSPORTS:
        with pytest.raises(WrongUrl, match="is not an address"):
            follow(url, transport=transport)


def _losses(listen: Callable[[str], Iterator[Event | Moved]]) -> list[tuple[str, float]]:
    """Return the reason and the delay of each connection of *listen* that was lost; a refusal ends
    it."""
    losses: list[tuple[str, float]] = []
    with pytest.raises(Refused):
        list(
            resume(
                listen,  # type: ignore[arg-type]
                "now",
                on_moved=lambda cursor: None,
                on_lost=lambda lost, delay_s: losses.append((lost.reason, delay_s)),
                wait=lambda delay_s: None,
            )
        )
    return losses


def test_the_backoff_starts_again_after_an_event() -> None:
    """An event shows that the server is well; a bare connection does not."""
    script: list[list[Event | Moved]] = [[], [], [], [Event(event_id(1), "insert")], [], []]

    def listen(cursor: str) -> Iterator[Event | Moved]:
        if not script:
            raise Refused("done")
        yield from script.pop(0)
        raise Lost("gone")

    delays = [delay_s for _, delay_s in _losses(listen)]

    assert delays[0] > 0.9 and delays[1] > 1.9 and delays[2] > 3.9
    assert 1.0 <= delays[3] <= 2.0
    assert 2.0 <= delays[4] <= 4.0


def test_a_stream_that_ends_in_its_time_is_resumed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is not reported, as it happens every two minutes on a stage. A stream that ends early is
    lost.
    """
    lengths_s = iter((120.0, 0.0, 120.0))
    monkeypatch.setattr(reconnect, "time", (clock := Clock()))

    def listen(cursor: str) -> Iterator[Event | Moved]:
        for length_s in lengths_s:
            clock.now_s += length_s
            raise Ended
        raise Refused("done")
        yield

    ((reason, delay_s),) = _losses(listen)

    assert reason == "the server ended the stream" and delay_s >= 1.0


def test_backoff_is_bounded() -> None:
    """After an outage of any length the next attempt comes after 1 to 32 seconds, never at once."""
    longest, shortest = Backoff(chance=lambda: 1.0), Backoff(chance=lambda: 0.0)

    assert [longest.next_s() for _ in range(1000)][:6] == [2, 4, 8, 16, 32, 32]
    assert [shortest.next_s() for _ in range(1000)][:6] == [1, 2, 4, 8, 16, 16]


def test_an_operation_at_or_below_the_last_one_repeats() -> None:
    """P6.4: page and slot decide; the next slot and the next page are new."""
    state = ResumeState(event_id(3, 2))

    assert not state.accepts(Event(event_id(3, 2), "insert"))
    assert not state.accepts(Event(event_id(2, 9), "update"))
    assert state.accepts(Event(event_id(3, 3), "update"))
    assert state.accepts(Event(event_id(4, 0), "delete"))


@pytest.mark.parametrize("between", [Event(ROW, "insert"), Event("", "reset"), Event("", "live")])
def test_a_copy_starts_anew(between: Event) -> None:
    """P5.6: after a copy the log may be another one, with pages that are numbered from 1 again."""
    state = ResumeState(event_id(1000))

    assert state.accepts(between)
    assert state.accepts(Event(event_id(1), "insert"))


@pytest.mark.parametrize("id", [ROW, "what"])
def test_ids_that_never_repeat(id: str) -> None:
    """P6.3: rows of a bucket share an id; an event with an id of an unknown kind is not lost."""
    state = ResumeState("")

    assert state.accepts(Event(id, "insert"))
    assert state.accepts(Event(id, "insert"))


@pytest.mark.parametrize("text", ["{", "[]", "1", '"a"'])
def test_data_that_is_no_object_ends_the_connection(text: str) -> None:
    """P6.1: data is one JSON object; anything else did not come from a feed."""
    with pytest.raises(Lost, match="not a JSON object"):
        from_text("1", "insert", text)
