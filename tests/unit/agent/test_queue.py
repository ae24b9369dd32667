"""The queue on disk: order, bound, restart, and a crash at any byte."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.agent.processes import operation
from tidings.agent import intake
from tidings.agent import queue as batches
from tidings.agent.queue import Batch, Bound, Problem, Store
from tidings.core.limits import REQUEST_BYTES_MAX, REQUEST_OPERATIONS_MAX
from tidings.core.model.operations import line_from

NOW = 1_795_000_000_000


def _keys() -> Callable[[], str]:
    return map("k{}".format, itertools.count(1)).__next__


def _opened(folder: Path, feed: str = "main") -> Store:
    made = Store(folder)
    made.prepare(feed)
    return made


@pytest.fixture
def queue(tmp_path: Path) -> Store:
    return _opened(tmp_path)


def _datagrams(queue: Store, *datagrams: bytes, bound: Bound = Bound(), now: int = NOW) -> None:  # noqa: B008 frozen
    intake.add_datagrams(queue, datagrams, now_ms=now, bound=bound)


def _line(object_id: str, **others: object) -> str:
    return line_from({"event": "update", "type": "video", "id": object_id, **others}, now_ms=NOW)


def _lines(queue: Store, *ids: str, bound: Bound = Bound()) -> bool:  # noqa: B008 frozen
    requests = [[_line(each) for each in ids]]
    (kept,) = intake.add_lines(queue, requests, now_ms=NOW, bound=bound)
    return kept


def _check(queue: Store) -> None:
    while intake.check(queue):
        pass


def _ids(batch: Batch | None) -> list[str]:
    return [json.loads(line)["id"] for line in batch.lines] if batch else []


def _all(queue: Store) -> list[list[str]]:
    """Return the ids of every batch, and settle each."""
    found, new_key = [], _keys()
    while batch := batches.first(queue, new_key):
        found.append(_ids(batch))
        batches.settle(queue, batch)
    return found


@pytest.mark.parametrize("datagrams", [[], [b""], [b"a", b"", b"\0\n" * 5], [b"x" * 65_507] * 3])
def test_datagrams_are_framed(datagrams: list[bytes]) -> None:
    """Any bytes survive the framing, and so does an empty datagram."""
    assert intake.unpack(intake.pack(datagrams)) == datagrams


def test_O25_the_order_of_arrival_is_kept(queue: Store) -> None:
    """This holds across both inputs: checked lines wait for older datagrams that are not checked
    yet."""
    _lines(queue, "a")
    _datagrams(queue, operation("b"), operation("c"))
    _lines(queue, "d")
    early = batches.first(queue, _keys())
    assert _ids(early) == ["a"]
    assert early is not None
    batches.settle(queue, early)
    assert batches.first(queue, _keys()) is None

    _check(queue)

    assert _all(queue) == [["b", "c", "d"]]


def test_time_of_receipt(queue: Store) -> None:
    """An operation without a timestamp gets the time it came, however late it is checked."""
    _datagrams(queue, operation("a"), now=1_000)
    _check(queue)

    batch = batches.first(queue, _keys())

    assert batch is not None
    assert json.loads(batch.lines[0])["timestamp"] == "1970-01-01T00:00:01Z"
    assert queue.oldest_ms() == 1_000


def test_O22_junk_is_counted_as_error(queue: Store) -> None:
    """It does not count as received; a chunk with nothing else leaves nothing."""
    _datagrams(queue, b"junk", b"", b"[]", operation("a"), b"{}", b"\xff")
    _datagrams(queue, b"nothing", b"but", b"junk")
    assert queue.totals().events == 9

    _check(queue)

    totals = queue.totals()
    assert (totals.received, totals.errors, totals.events) == (1, 8, 1)
    assert _all(queue) == [["a"]]
    assert (queue.totals().bytes, queue.totals().ingested) == (0, 1)


def test_O24_a_full_queue_discards_unread(queue: Store) -> None:
    """The first ones are kept; junk counts as discarded like the rest."""
    bound = Bound(events=5)
    _datagrams(queue, *[operation(n) for n in range(4)], bound=bound)
    _datagrams(queue, operation(4), operation(5), b"junk", bound=bound)
    _datagrams(queue, b"junk", bound=bound)
    _check(queue)

    totals = queue.totals()
    assert (totals.received, totals.discarded, totals.errors) == (5, 3, 0)
    assert _all(queue) == [["0", "1", "2", "3", "4"]]


def test_bytes_are_bounded_too(queue: Store) -> None:
    """Operations may be 64 KB each."""
    one = operation("a")
    _datagrams(queue, one, one, one, bound=Bound(bytes=2 * len(one) + 1))

    assert (queue.totals().events, queue.totals().discarded) == (2, 1)


def test_a_request_is_queued_whole_or_not_at_all(queue: Store) -> None:
    """Operations in flight count until they are acknowledged."""
    bound = Bound(events=3)
    assert _lines(queue, "a", "b", bound=bound)
    assert not _lines(queue, "c", "d", bound=bound)
    assert _lines(queue, "c", bound=bound)
    batch = batches.first(queue, _keys())
    assert not _lines(queue, "d", bound=bound)
    assert batch is not None
    batches.settle(queue, batch)

    assert _lines(queue, "d", bound=bound)
    assert _all(queue) == [["d"]]


def test_batches_are_what_a_feed_takes(queue: Store) -> None:
    """A batch has at most a thousand operations or a megabyte, and may end within a chunk."""
    _datagrams(queue, *[operation(n) for n in range(700)])
    _datagrams(queue, *[operation(n) for n in range(700, 1_500)])
    _check(queue)
    large = [operation(n, data="x" * 60_000) for n in range(40)]
    _datagrams(queue, *large)
    _check(queue)

    new_key, seen = _keys(), []
    while batch := batches.first(queue, new_key):
        assert len(batch.lines) <= REQUEST_OPERATIONS_MAX
        assert len(batch.body) <= REQUEST_BYTES_MAX
        seen += _ids(batch)
        batches.settle(queue, batch)

    assert seen == [str(n) for n in [*range(1_500), *range(40)]]
    assert new_key() == "k5"  # 1,000; 500 and some large ones; a megabyte; the rest


def test_a_batch_is_the_same_after_a_restart(queue: Store, tmp_path: Path) -> None:
    """The key and content stay, whatever came later, so that the feed appends it once."""
    _lines(queue, "a", "b")
    begun = batches.first(queue, _keys())
    _lines(queue, "c")
    queue.close()

    again = _opened(tmp_path)

    assert batches.first(again, lambda: "another") == begun
    assert _all(again) == [["a", "b"], ["c"]]


def test_W21_a_restart_counts_from_zero_and_keeps_what_is_queued(tmp_path: Path) -> None:
    """oplog's counters do so too; the next agent checks the unchecked datagrams."""
    first = _opened(tmp_path)
    _lines(first, "a")
    _datagrams(first, operation("b"), bound=Bound(events=1))
    _datagrams(first, operation("c"))
    first.close()

    again = _opened(tmp_path)
    _check(again)

    totals = again.totals()
    assert (totals.events, totals.received, totals.discarded) == (2, 1, 0)
    assert _all(again) == [["a", "c"]]


def test_what_is_queued_goes_to_its_own_feed(tmp_path: Path) -> None:
    """An agent started for another feed does not mix them; an empty queue takes any."""
    first = _opened(tmp_path, "orders")
    _lines(first, "a")
    first.close()

    with pytest.raises(Problem, match=r"1 queued operations are for the feed 'orders', not 'main'"):
        _opened(tmp_path, "main")
    _all(_opened(tmp_path, "orders"))
    _opened(tmp_path, "main")


@pytest.mark.parametrize(
    ("earlier", "now", "adopt", "is_taken"),
    [
        (("main", "http://a"), ("main", "http://a"), None, True),
        (("main", ""), ("main", "http://a"), None, True),  # an earlier release stored no address
        (("main", "http://a"), ("main", "http://b"), None, False),
        (("main", "http://a"), ("main", "http://b"), 2, False),
        (("main", "http://a"), ("main", "http://b"), 1, True),
        (("orders", "http://a"), ("main", "http://a"), 1, True),
    ],
)
def test_what_is_queued_goes_to_its_own_server(
    tmp_path: Path,
    earlier: tuple[str, str],
    now: tuple[str, str],
    adopt: int | None,
    is_taken: bool,
) -> None:
    """The number of the queued operations moves them to another feed or server."""
    first = Store(tmp_path)
    first.prepare(*earlier)
    _lines(first, "a")
    first.close()

    second = Store(tmp_path)
    if is_taken:
        second.prepare(*now, adopt)
    else:
        with pytest.raises(Problem, match=r"1 queued .*'main at http://a'.*http://b.*--adopt 1"):
            second.prepare(*now, adopt)
    second.close()


def test_another_version_is_refused(tmp_path: Path) -> None:
    """Otherwise its content could be misread."""
    with sqlite3.connect(tmp_path / batches.NAME) as db:
        db.execute("PRAGMA user_version = 99")

    with pytest.raises(Problem, match="another version"):
        _opened(tmp_path)


def test_a_refused_batch_is_divided_in_order(queue: Store) -> None:
    """It is divided down to one operation; each half has its own key, and later operations stay
    after it.
    """
    _lines(queue, "a", "b", "c")
    new_key = _keys()
    whole = batches.first(queue, new_key)
    assert whole is not None
    batches.divide(queue, whole, new_key)
    first = batches.first(queue, new_key)
    assert first is not None
    assert (_ids(first), first.key) == (["a"], "k2")
    batches.settle(queue, first)
    rest = batches.first(queue, new_key)
    assert rest is not None
    batches.divide(queue, rest, new_key)
    poison = batches.first(queue, new_key)
    assert _ids(poison) == ["b"]
    assert poison is not None
    batches.drop(queue, poison)
    _lines(queue, "d")

    assert _all(queue) == [["c"], ["d"]]
    totals = queue.totals()
    assert (totals.ingested, totals.errors, totals.refused, totals.events) == (3, 1, 1, 0)


def test_halves_stay_before_what_follows(queue: Store) -> None:
    """A half that is divided again stays before the other half."""
    _lines(queue, *"abcdefgh")
    new_key, seen = _keys(), []
    while batch := batches.first(queue, new_key):
        if len(batch.lines) > 1:
            batches.divide(queue, batch, new_key)
        else:
            seen += _ids(batch)
            batches.settle(queue, batch)

    assert seen == list("abcdefgh")


def test_a_crash_at_any_byte(tmp_path: Path) -> None:
    """Whatever part of the last writes reached the disk, the queue opens and holds a prefix of the
    operations: none torn, none out of order, and the counts are right.
    """
    whole = tmp_path / "whole"
    whole.mkdir()
    queue = _opened(whole)
    queue.read("PRAGMA wal_checkpoint(TRUNCATE)")
    for n in range(6):
        _datagrams(queue, operation(f"{n}a"), operation(f"{n}b", data="x" * 1_500 * n))
        _check(queue)
    log = (whole / f"{batches.NAME}-wal").read_bytes()
    everything = [f"{n}{letter}" for n in range(6) for letter in "ab"]
    held = set()

    for length in [*range(0, len(log), 1_499), len(log)]:
        torn = tmp_path / "torn"
        shutil.rmtree(torn, ignore_errors=True)
        torn.mkdir()
        shutil.copy(whole / batches.NAME, torn / batches.NAME)
        (torn / f"{batches.NAME}-wal").write_bytes(log[:length] + b"\xff" * (length % 3) * 100)
        after = Store(torn)
        totals = after.totals()
        _check(after)
        found = list(itertools.chain.from_iterable(_all(after)))
        assert found == everything[: len(found)]
        assert totals.events == len(found)
        after.close()
        held.add(len(found))

    queue.close()
    assert held == {0, 2, 4, 6, 8, 10, 12}


def test_nothing_is_half_done(queue: Store) -> None:
    """A transaction that fails leaves everything as it was."""
    _lines(queue, "a")
    with pytest.raises(RuntimeError), queue.transaction() as db:
        db.execute("DELETE FROM chunks")
        raise RuntimeError

    assert queue.totals().events == 1
    assert _all(queue) == [["a"]]


def test_a_full_disk_refuses_and_recovers(queue: Store) -> None:
    """Operations that do not fit on the disk are refused; earlier ones stay; later there is space
    again.
    """
    _lines(queue, "a")
    ((pages,),) = queue.read("PRAGMA page_count")
    queue.read(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        _lines(queue, *[f"b{n}" for n in range(500)])
    with pytest.raises(sqlite3.OperationalError, match="full"):
        _datagrams(queue, operation("c", data="x" * 20_000))
    assert queue.totals().events == 1
    queue.read("PRAGMA max_page_count = 100000")

    assert _lines(queue, "d")
    assert _all(queue) == [["a", "d"]]
