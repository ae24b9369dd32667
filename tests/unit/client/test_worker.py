"""The lease of a worker, against a feed with scripted answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.contract.answering import Answer, Answering, answering
from tidings.client.events import Event
from tidings.client.feed_api import NamedConsumers
from tidings.client.worker import Overtaken, Session

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


def leased(api: NamedConsumers, cursor: str, *, copying: bool = False) -> Session:
    answer = {
        "fence": 1,
        "lease_ms": 30_000,
        "cursor": cursor,
        "copying": copying,
        "acked": "",
        "single_through": None,
        "retries": [PLACE],
        "paused": False,
    }
    return Session(api, "index", answer, lambda call: call())


def refusal(code: str, status: int) -> Answer:
    error = {"code": code, "message": "no", "field": "", "value": None, "rule": "no"}
    return Answer(status, {"error": error})


def event(id: str, name: str = "insert") -> Event:
    return Event(id, name, {})


def test_T12_a_copy_is_not_taken_for_the_log(api: NamedConsumers) -> None:
    """
    A worker that began in the log is sent rows if its pages have been trimmed. Rows are the latest
    operations: acknowledged, they would count as all messages.
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
