"""The lease of a worker, against a feed with scripted answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import pytest

from tests.contract.answering import Answer, Answering, answering
from tidings.client.consumer import Consumer, Delivery, InFlight, PrefetchBuffer
from tidings.client.events import Event
from tidings.client.feed_api import NamedConsumers
from tidings.client.worker import BULK, LINGER_S, Overtaken, Session, _Turn

PLACE, ROW = "6562c4f80000000007000003", "000000000000000007800005"
OLDEST, TRIMMED = "0" * 18 + "7fffff", "000000000000000007800040"  # of a log from page 1, from 8


@pytest.fixture
def feed() -> Iterator[Answering]:
    with answering() as server:
        yield server


@pytest.fixture
def api(feed: Answering) -> Iterator[NamedConsumers]:
    with NamedConsumers(feed.url) as named:
        yield named


def leased(api: NamedConsumers, cursor: str, *, copying: bool = False, **more: object) -> Session:
    answer = {
        "fence": 1,
        "lease_ms": 30_000,
        "cursor": cursor,
        "copying": copying,
        "acked": "",
        "single_through": None,
        "retries": [PLACE],
        "paused": False,
        **more,
    }
    return Session(api, "index", answer, lambda call: call())


def refusal(code: str, status: int) -> Answer:
    error = {"code": code, "message": "no", "field": "", "value": None, "rule": "no"}
    return Answer(status, {"error": error})


def event(id: str, name: str = "insert") -> Event:
    return Event(id, name, {})


def test_22_4_a_worker_opens_its_stream_as_the_lease_says(api: NamedConsumers) -> None:
    """P22.4: with the erasures that its consumer asked for; older feeds do not name them."""
    assert leased(api, PLACE).filter["erasures"] is False
    assert leased(api, PLACE, erasures=True).filter["erasures"] is True


def test_T12_a_copy_is_not_taken_for_the_log(api: NamedConsumers) -> None:
    """A worker that began in the log is sent rows if its pages have been trimmed. Rows are the
    latest operations: acknowledged, they would count as all messages.
    """
    for cursor in (PLACE, OLDEST, TRIMMED):
        with leased(api, cursor) as session:
            assert session.expects(event(PLACE))
            assert session.expects(event(PLACE, "live"))
            assert not session.expects(event(ROW))
            assert not session.expects(event("1", "reset"))
    for cursor in ("0", ROW):
        with leased(api, cursor, copying=True) as session:
            assert session.expects(event(ROW))
            assert session.expects(event("1", "reset"))


@pytest.mark.parametrize(("place", "named"), [(PLACE, {"id": PLACE}), (ROW, {}), ("1", {})])
def test_what_is_refused_is_named_if_the_log_has_it(
    feed: Answering, api: NamedConsumers, place: str, named: dict[str, str]
) -> None:
    """A row of a copy is not a message: its id would be refused, and the error would be lost."""
    feed.script = [Answer(200, {"retries": [], "paused": False})]
    with leased(api, PLACE) as session:
        session.fail(place, "too long")
        (asked,) = feed.asked
    assert json.loads(asked.body) == {"fence": 1, "error": "too long", **named}


def test_a_lost_answer_about_a_parked_message_ends_nothing(
    feed: Answering, api: NamedConsumers
) -> None:
    """A repeated request is refused because the first one counted; other errors are raised."""
    feed.script = [
        Answer(200, {"retries": [], "paused": False}),
        refusal("unknown_parked", 404),
        refusal("fence_lost", 409),
    ]
    with leased(api, PLACE) as session:
        assert session.acknowledge_again(PLACE)
        assert not session.acknowledge_again(PLACE)
        with pytest.raises(Overtaken):
            session.acknowledge_again(PLACE)


class Trickle:
    """A consumer that receives a message every *pause_s*, and the clock of its worker."""

    def __init__(self, pause_s: float) -> None:
        self.cursor, self.now_s = PLACE, 1.0
        self._pause_s, self._due_s, self._in_flight = pause_s, 1.0, InFlight(PLACE, BULK)

    def within(self, timeout_s: float) -> Delivery | None:
        if self.now_s + timeout_s < self._due_s:
            self.now_s += timeout_s
            return None
        self.now_s = max(self.now_s, self._due_s)
        self._due_s += self._pause_s
        buffer = cast("PrefetchBuffer", self._in_flight)  # `ack` of a delivery calls only its `ack`
        return Delivery(event(PLACE), buffer, self._in_flight.add(PLACE))


def test_a_batch_waits_for_more_messages_only_once(feed: Answering, api: NamedConsumers) -> None:
    """Messages that arrive steadily, each within the wait, would fill a batch for a minute."""
    trickle, waits = Trickle(LINGER_S / 2.5), list[float]()
    with leased(api, PLACE) as session:
        turn = _Turn(session, cast("Consumer", trickle), lambda _: None, BULK)
        turn._now_s = lambda: trickle.now_s
        for _ in range(3):
            began_s = trickle.now_s
            assert len(turn._batch()) in (2, 3)
            waits.append(trickle.now_s - began_s)
    assert max(waits) < 2 * LINGER_S
