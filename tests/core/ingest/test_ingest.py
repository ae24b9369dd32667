"""Ingesting: a request becomes one page, or an error and nothing else."""

from __future__ import annotations

import json

import pytest
from tidings.core import limits
from tidings.core.errors import (
    InvalidOperation,
    Rejected,
)
from tidings.core.ingest.ingest import Request, check_key
from tidings.core.model import cursors
from tidings.core.model.json_body import JSON_TYPE, NDJSON_TYPE

from tests.core.scene import FEED, NOW, Scene, line, op, unavailable


def request(*operations: object, feed: str = FEED, key: str | None = None) -> Request:
    return Request(feed, json.dumps(operations).encode(), JSON_TYPE, key)


def test_O09_an_accepted_operation_is_in_the_log(scene: Scene) -> None:
    """The answer names its place there."""
    ids = scene.ingester.accept(Request(FEED, json.dumps(op()).encode(), JSON_TYPE))

    assert [cursors.parse(each) for each in ids] == [cursors.Place(1, 0, NOW // 1000)]
    assert [each.lines for each in scene.log.read(FEED, 0)] == [[line()]]


def test_a_request_is_one_page(scene: Scene) -> None:
    """In its order, with an id for each operation."""
    ids = scene.ingester.accept(request(op("a"), op("b"), op("c")))

    (page,) = scene.log.read(FEED, 0)
    assert page.lines == [line("a"), line("b"), line("c")]
    assert ids == [f"{page.id_prefix}{slot:06x}" for slot in range(3)]
    assert scene.counted["OperationsIngested"] == 3


def test_O14_what_is_accepted_is_in_the_state_of_the_next_replication(scene: Scene) -> None:
    """At once in the log and, when its follower ran, in the state."""
    scene.ingester.accept(request(op("a", "insert")))
    scene.project()

    assert scene.rows() == {"video/a": line("a", "insert")}


@pytest.mark.parametrize("event", ["update", "delete"])
def test_O20_operations_on_objects_never_seen(scene: Scene, event: str) -> None:
    """Accepted and streamed like any other."""
    scene.ingester.accept(request(op("new", event)))

    assert scene.log.read(FEED, 0)[0].lines == [line("new", event)]


def test_O22_refused_operations_are_counted(scene: Scene) -> None:
    """One for a request; what names no feed, or no operations, is not among them."""
    wrong = (
        request(op("a"), op("")),
        Request(FEED, b"{", JSON_TYPE),
        Request(FEED, b"x" * (limits.REQUEST_BYTES_MAX + 1), JSON_TYPE),
        Request(FEED, b"{}", "text/plain"),
        request(op("a"), feed="nope"),
        request(op("a"), key=""),
    )
    for each in wrong:
        with pytest.raises(Rejected):
            scene.ingester.accept(each)

    assert scene.counted == {"RequestsRejected": 6}
    assert scene.tallies.totals(FEED, now_ms=NOW).refused == 3
    assert scene.tallies.totals("nope", now_ms=NOW).refused == 0


def test_a_refusal_that_cannot_be_counted_is_still_one(scene: Scene) -> None:
    """The producer hears what is wrong, whatever the weather."""
    scene.tallies.refuse = unavailable  # type: ignore[method-assign]
    with pytest.raises(InvalidOperation):
        scene.ingester.accept(request(op("")))


def test_a_repeated_request_gets_the_same_ids(scene: Scene) -> None:
    """And is appended once."""
    first = scene.ingester.accept(request(op("a"), op("b"), key="k"))
    scene.now_ms += 60_000

    assert scene.ingester.accept(request(op("a"), op("b"), key="k")) == first
    assert scene.log.head(FEED) == 1


def test_a_key_with_another_body_is_refused(scene: Scene) -> None:
    """Byte for byte: even the same operations in other words."""
    body = json.dumps(op()).encode()
    scene.ingester.accept(Request(FEED, body, JSON_TYPE, "k"))

    with pytest.raises(Rejected) as refused:
        scene.ingester.accept(Request(FEED, body + b"\n", NDJSON_TYPE, "k"))
    assert (refused.value.status, refused.value.code) == (422, "idempotency_key_reused")
    assert scene.log.head(FEED) == 1


@pytest.mark.parametrize("key", [" ", "~", "a" * limits.IDEMPOTENCY_KEY_CHARS_MAX])
def test_what_is_a_key(key: str) -> None:
    """Printable ASCII."""
    assert check_key(key) == key
