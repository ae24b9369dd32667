"""Rows O38 to O62: resuming, replications, filters, and the contents of the state."""

from __future__ import annotations

import re
import threading
import time
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


FOREIGN = "f095528dd0f3863c"  # the end of another program's ObjectId, after the time
BATCH = 1000
OPLOGC_ID = re.compile("[0-9]{0,13}|[0-9a-f]{24}")  # what oplog's client keeps in its file


def shown_objects(blocks: list[Block]) -> list[str]:
    return sorted(str(block) for block in blocks if "id" in block.data)


def object_id(ago_s: float = 0) -> str:
    """Return an ObjectId that some other server made *ago_s* ago."""
    return f"{int(time.time() - ago_s):08x}{FOREIGN}"


def refilled(feed: Feed) -> Feed:
    """Fill the feed: a and b live, c changed, d is deleted; all of it in the state."""
    feed.post(op("a"), op("b"), op("c"), op("d"))
    feed.post(op("c", "update", parents=["p"]), op("d", "delete"))
    feed.settle()
    return feed


@pytest.fixture(scope="module")
def still(host: Server, spare: Iterator[str]) -> Feed:
    """Filled once, and never posted to again."""
    return refilled(feed_of(host, next(spare)))


def test_O38_from_a_known_operation(feed: Feed) -> None:
    """Everything later, in the order of the log, without that one, without reset and live."""
    ids = feed.post(*(op(f"x{number}") for number in range(5)))
    ids += feed.post(op("x0", "delete"), op("x1", "update"))
    with feed.listening(ids[2]) as listener:
        heard = listener.take(4)

        assert said(heard) == ["insert x3", "insert x4", "delete x0", "update x1"]
        assert [block.id for block in heard] == ids[3:]
    with feed.listening(ids[-1]) as listener:
        feed.post(op("next"))
        assert str(listener.next()) == "insert next"


def test_O39_producers_that_race_leave_one_order(feed: Feed) -> None:
    """A reader that resumes anywhere gets what one that never left got; ids rise with it."""

    def produce(producer: int) -> None:
        for number in range(8):
            feed.post(op(f"{producer}-{number}"))

    with feed.listening() as listener:
        producers = [threading.Thread(target=produce, args=[number]) for number in range(4)]
        for thread in producers:
            thread.start()
        heard = listener.take(32)
        for thread in producers:
            thread.join()

    pages = [block.id[8:] for block in heard]
    assert pages == sorted(pages) and len(set(pages)) == 32
    for at in (0, 9, 20):
        with feed.listening(heard[at].id) as resumed:
            assert resumed.take(31 - at) == heard[at + 1 :]


@pytest.mark.parametrize(
    "behind", [FOREIGN, "0" * 16, "f" * 16, "f095528dd080000a", "f095528dd0c00000"]
)
def test_O40_an_id_that_is_not_in_the_log(still: Feed, behind: str) -> None:
    """Rows since its second, deletes too, no reset, then `live`; upper case or lower."""
    told = still.copied((object_id()[:8] + behind).upper())

    assert shown_objects(told) == ["delete d", "insert a", "insert b", "insert c"]
    assert said(told)[-1] == "live" and "reset" not in said(told)


def test_O40_behind_the_rows_comes_the_log(feed: Feed) -> None:
    """On the same stream."""
    feed.post(op("a"))
    with feed.listening(object_id()) as listener:
        listener.until("live")
        feed.post(op("b"))

        assert str(listener.next()) == "insert b"


@pytest.mark.parametrize("old", ["0" * 24, f"545b55c7{FOREIGN}"])
def test_O40_an_id_from_before_all_memory(still: Feed, old: str) -> None:
    """A time of zero, or so old that deletes are forgotten: `reset` and everything, as for 0."""
    assert still.copied(old) == still.copied("0")


def test_O40_an_id_from_the_future(feed: Feed) -> None:
    """No rows; `live` with an id from which nothing is missed."""
    refilled(feed)
    told = feed.copied(object_id(ago_s=-86_400))
    feed.post(op("e"))

    assert said(told) == ["live"]
    with feed.listening(told[0].id) as listener:
        assert str(listener.next()) == "insert e"


def test_O41_a_fallback_that_is_interrupted_goes_on_with_deletes(still: Feed) -> None:
    """After any cut the remaining rows are sent, and the deleted object among them."""
    told = still.copied(object_id())

    for at, block in enumerate(told[:-1]):
        resumed = shown_objects(still.copied(block.id))
        assert set(shown_objects(told[at + 1 :])) <= set(resumed)


def test_O42_O44_O46_a_full_replication(feed: Feed) -> None:
    """`reset` with id 1, each living object as an insert, one `live`, then the log."""
    refilled(feed)
    with feed.listening("0") as listener:
        told = listener.until("live")
        feed.post(op("c", "delete"))

        assert (told[0].id, told[0].name, told[0].text) == ("1", "reset", "{}")
        assert said(told[1:-1]) and shown_objects(told) == ["insert a", "insert b", "insert c"]
        assert told[-1].text == "{}"
        assert str(listener.next()) == "delete c"


@pytest.mark.parametrize("zero", ["00", "-0", "+0", "0" * 13])
def test_O42_every_zero_is_zero(still: Feed, zero: str) -> None:
    """Thirteen digits at most."""
    assert still.copied(zero) == still.copied("0")


@pytest.mark.parametrize("number", ["1", "-5", "+5", "-999999999999"])
def test_O43_everything_without_reset(still: Feed, number: str) -> None:
    """The request of a client that has handled `reset`; below zero, and soon after it, the same."""
    assert still.copied(number) == still.copied("0")[1:]


def test_O45_nothing_of_the_last_second_is_missing(feed: Feed) -> None:
    """The latest posts are in the replication, and `live` comes after them."""
    for number in range(3):
        feed.post(op(f"x{number}"))

    assert set(shown_objects(feed.copied())) == {"insert x0", "insert x1", "insert x2"}


def test_O47_what_goes_while_a_replication_is_interrupted_is_told(feed: Feed) -> None:
    """The consumer has the row; it must receive the deletion."""
    refilled(feed)
    row = next(block for block in feed.copied() if str(block) == "insert a")
    feed.post(op("a", "delete"))
    feed.settle()

    assert "delete a" in said(feed.copied(row.id))


def test_O48_since_a_millisecond(feed: Feed) -> None:
    """What changed at it or after it, without reset and without the dead."""
    feed.post(op("a"), op("b"))
    time.sleep(0.05)
    (event_id,) = feed.post(op("b", "update"), op("c"), op("d"))[:1]
    feed.post(op("d", "delete"))
    feed.settle()
    moment = _last_change(feed, int(event_id[:8], 16) * 1000)

    assert said(feed.copied(str(moment + 1))) == ["live"]
    assert shown_objects(feed.copied(str(moment))) == ["insert b", "insert c"]
    assert said(feed.copied(str(moment)))[-1] == "live"


@pytest.mark.parametrize("number", ["9999999999999", "9223372036855", "+999999999999"])
def test_O48_large_numbers(still: Feed, number: str) -> None:
    """In the future there are no rows; oplog's number overflowed, and it sent everything."""
    past = number.startswith("+")  # twelve digits: the year 2001

    assert said(still.copied(number)) == (said(still.copied("1")) if past else ["live"])


def test_O49_O50_every_id_can_be_resumed_from(feed: Feed) -> None:
    """In a form that oplog's client keeps; after `live` and its like nothing is missed."""
    refilled(feed)
    told = feed.copied()

    assert all(OPLOGC_ID.fullmatch(block.id) for block in told)
    for at, block in enumerate(told[:-1]):
        assert set(shown_objects(told[at + 1 :])) <= set(shown_objects(feed.copied(block.id)))
    (event_id,) = feed.post(op("e"))
    with feed.listening(told[-1].id) as listener:
        assert listener.next().id == event_id


def test_O51_an_empty_feed(feed: Feed) -> None:
    """A consumer waits; a replication is `reset`, `live`, and then what comes."""
    with feed.listening() as waiting, feed.listening("0") as copying:
        assert said(copying.take(2)) == ["reset", "live"]
        feed.post(op("first"))

        assert str(waiting.next()) == str(copying.next()) == "insert first"


def test_O50_O51_live_of_an_empty_feed_is_a_place(feed: Feed) -> None:
    """oplog's was empty, and a client that kept it lost what came before it was back."""
    told = feed.copied()
    feed.post(op("first"))

    with feed.listening(told[-1].id) as listener:
        assert str(listener.next()) == "insert first"


def test_O52_what_comes_during_a_replication_is_not_lost(feed: Feed) -> None:
    """Every object that is posted in the meantime is sent, as a row or from the log."""
    feed.post(*(op(f"x{number}") for number in range(BATCH)))
    feed.settle()

    def produce() -> None:
        for number in range(10):
            feed.post(op(f"new{number}"), op(f"x{number}", "delete"))

    producer = threading.Thread(target=produce)
    with feed.listening("0") as listener:
        producer.start()
        copy: set[str] = set()
        while not _ends(copy, listener.next()):
            pass
        producer.join()

    expected = {f"x{number}" for number in range(10, BATCH)}
    assert copy == expected | {f"new{number}" for number in range(10)}


def _ends(copy: set[str], block: Block) -> bool:
    """Take *block* into *copy* as a consumer would; whether it was the last one posted."""
    name = block.data.get("id")
    if block.name == "delete":
        copy.discard(name)
    elif name is not None:
        copy.add(name)
    return name == "x9" and block.name == "delete"


def test_O53_a_slow_consumer_misses_nothing(feed: Feed) -> None:
    """20,000 operations are posted while it does not read; then it reads them all, in order."""
    listener = feed.open(buffer_bytes=4096)
    ids: list[str] = []
    for batch in range(20):
        ids += feed.post(*(op(f"{batch}-{number}") for number in range(BATCH)))

    assert [block.id for block in listener.take(len(ids))] == ids
    listener.close()


def test_O54_many_objects_of_one_millisecond(feed: Feed) -> None:
    """A page has one time; two pages of a thousand shown_objects end, each object once."""
    for half in range(2):
        feed.post(*(op(f"{half}-{number}") for number in range(BATCH)))
    feed.settle()
    told = feed.copied()

    assert len(told) == 2 * BATCH + 2
    assert len(set(shown_objects(told))) == 2 * BATCH


def _last_change(feed: Feed, second_ms: int) -> int:
    """Return the last millisecond since which something has changed, by bisection."""
    low, high = second_ms, second_ms + 2000
    while high - low > 1:
        middle = (low + high) // 2
        if feed.copied(str(middle))[:-1]:
            low = middle
        else:
            high = middle
    return low
