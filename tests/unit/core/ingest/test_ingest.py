"""Ingesting: a request becomes one page, or an error and nothing else."""

from __future__ import annotations

import json

import pytest

from tests.unit.core.scene import FEED, NOW, Scene, op, unavailable
from tidings.core import limits
from tidings.core.errors import InvalidOperation, Rejected
from tidings.core.ingest.ingest import PostRequest, check_key
from tidings.core.model.json_body import JSON_TYPE


def request(*operations: object, feed: str = FEED, key: str | None = None) -> PostRequest:
    return PostRequest(feed, json.dumps(operations).encode(), JSON_TYPE, key)


def test_O22_refused_operations_are_counted(scene: Scene) -> None:
    """One for a request; what names no feed, or no operations, is not among them."""
    wrong = (
        request(op("a"), op("")),
        PostRequest(FEED, b"{", JSON_TYPE),
        PostRequest(FEED, b"x" * (limits.REQUEST_BYTES_MAX + 1), JSON_TYPE),
        PostRequest(FEED, b"{}", "text/plain"),
        request(op("a"), feed="nope"),
        request(op("a"), key=""),
    )
    for each in wrong:
        with pytest.raises(Rejected):
            scene.ingester.accept(each)

    assert scene.counted == {"RequestsRejected": 6}
    assert scene.counters.totals(FEED, now_ms=NOW).refused == 3
    assert scene.counters.totals("nope", now_ms=NOW).refused == 0


def test_a_refusal_that_cannot_be_counted_is_still_one(scene: Scene) -> None:
    """The producer gets the error, even if a store is unavailable."""
    scene.counters.refuse = unavailable  # type: ignore[method-assign]
    with pytest.raises(InvalidOperation):
        scene.ingester.accept(request(op("")))


@pytest.mark.parametrize("key", [" ", "~", "a" * limits.IDEMPOTENCY_KEY_CHARS_MAX])
def test_what_is_a_key(key: str) -> None:
    """Printable ASCII."""
    assert check_key(key) == key
