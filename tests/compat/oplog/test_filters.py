"""Rows O55 to O62: filters, and the contents of the state."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.oplog.feed import Feed, feed_of, op, said
from tests.compat.oplog.wire import Block
from tidings.server.running import Server

OPERATIONS = [
    op("1", type="a"),
    op("2", type="b", parents=["u/x", "u/y"]),
    op("3", type="a", parents=["u/x"]),
    op("4", type="c", parents=["u/y"]),
    op("5", type="B", parents=["U/X"]),
]
FILTERS = [
    ({"types": "a"}, "13"),
    ({"types": "a,b"}, "1235"),
    ({"types": "a%2Cb"}, "1235"),
    ({"types": "B"}, ""),
    ({"types": "b, a"}, "25"),
    ({"parents": "u/x"}, "23"),
    ({"parents": "u%2Fx,u%2Fy"}, "234"),
    ({"parents": "U/X"}, "5"),
    ({"types": "a,b", "parents": "u/y,U/X"}, "25"),
    ({"types": "c", "parents": "u/x"}, ""),
    ({"types": ""}, "12345"),
    ({"types": "", "parents": ""}, "12345"),
    ({"types": ","}, ""),
    ({"types": ",a,"}, "13"),
    ({"types": "a&types=b"}, "13"),
    ({"types": "a", "unknown": "b"}, "13"),
]


@pytest.fixture(scope="module")
def filled(host: Server, spare: Iterator[str]) -> Feed:
    """A feed with five objects, in the log and in the state."""
    feed = feed_of(host, next(spare))
    feed.post(*OPERATIONS)
    feed.settle()
    return feed


def objects(blocks: list[Block]) -> str:
    return "".join(sorted(block.data["id"] for block in blocks if "id" in block.data))


@pytest.mark.parametrize(("filters", "matching"), FILTERS)
def test_O55_O56_O57_O58_in_a_replication(
    filled: Feed, filters: dict[str, str], matching: str
) -> None:
    """OR inside each, AND between them, exact; `reset` and `live` pass every filter."""
    with filled.listening("0", **filters) as listener:
        told = listener.until("live")

    assert (told[0].name, told[-1].name) == ("reset", "live")
    assert objects(told) == matching


@pytest.mark.parametrize(("filters", "matching"), FILTERS)
def test_O55_O56_O57_O58_from_the_log(filled: Feed, filters: dict[str, str], matching: str) -> None:
    """The same operations as in a replication, in the order of the log."""
    start = "0" * 18 + "7fffff"
    with filled.listening(start, **filters) as listener:
        told = listener.take(len(matching))

    assert "".join(block.data["id"] for block in told) == matching


def test_O55_O56_O57_O58_live(feed: Feed) -> None:
    """The same operations as they come, for all filters at once."""
    listeners = [feed.open(filters=filters) for filters, _ in FILTERS]
    feed.post(*OPERATIONS)
    heard = [
        objects(listener.take(len(matching)))
        for listener, (_, matching) in zip(listeners, FILTERS, strict=True)
    ]
    for listener in listeners:
        assert listener.silent(0.01)
        listener.close()

    assert heard == [matching for _, matching in FILTERS]


def test_O59_the_last_arrival_wins(feed: Feed) -> None:
    """The state is the last operation of the stream; timestamps order nothing."""
    feed.post(op("a", "update", timestamp="2026-01-02T00:00:00Z", parents=["new"]))
    feed.post(op("a", "update", timestamp="2025-01-01T00:00:00Z", parents=["old"]))
    feed.post(op("b", timestamp="2026-01-02T00:00:00Z"))
    feed.post(op("b", "delete", timestamp="2025-01-01T00:00:00Z"))
    feed.settle()
    rows = feed.copied()[1:-1]

    assert said(rows) == ["insert a"]
    assert (rows[0].data["timestamp"], rows[0].data["parents"]) == ("2025-01-01T00:00:00Z", ["old"])


def test_O60_an_update_is_replicated_as_insert(feed: Feed) -> None:
    """With its latest parents and timestamp; on the stream it stays an update."""
    with feed.listening() as listener:
        feed.post(op("a"), op("a", "update", parents=["p"], timestamp="2026-01-02T00:00:00Z"))
        live = listener.take(2)
    feed.settle()
    row = feed.copied()[1]

    assert said(live) == ["insert a", "update a"]
    assert str(row) == "insert a"
    assert row.text == live[1].text


def test_O61_names_with_slashes_do_not_collide(feed: Feed) -> None:
    """Type `a/b`, id `c` is another object than type `a`, id `b/c`."""
    feed.post(op("c", type="a/b"), op("b/c", type="a"), op("c", type="a%2fb"))
    feed.settle()
    rows = feed.copied()[1:-1]

    pairs = sorted((row.data["type"], row.data["id"]) for row in rows)
    assert pairs == [("a", "b/c"), ("a%2fb", "c"), ("a/b", "c")]


def test_O62_a_timestamp_that_cannot_be_told_is_refused(feed: Feed) -> None:
    """oplog took it, and no consumer got past it any more."""
    with feed.listening() as listener:
        with pytest.raises(AssertionError, match="9999-12-31T23:59:59-23:59"):
            feed.post(op(timestamp="9999-12-31T23:59:59-23:59"))
        feed.post(op("after"))

        assert str(listener.next()) == "insert after"
