"""The agent below its port: the queue on disk, the receiver, the sender and its HTTP answers."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import os
import shutil
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.agent.processes import operation
from tidings.agent import intake, receiver, sender
from tidings.agent import queue as batches
from tidings.agent.http import Application, Committing
from tidings.agent.intake import NOTICE_EVERY_S, Notices
from tidings.agent.queue import NAME, Batch, Bound, Problem, Store, default_folder
from tidings.agent.receiver import Receiver, bind_ports, kernel_drops
from tidings.agent.sender import DELAY_S_MAX, Retrying
from tidings.core.limits import REQUEST_BYTES_MAX, REQUEST_OPERATIONS_MAX
from tidings.core.model.operations import line_from
from tidings.http.asgi import Message

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


class Scene:
    """A receiver in a thread, its sender and its queue."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.store.prepare("main")
        self.listener, self.sock = bind_ports("127.0.0.1", 0)
        self.sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sender.connect(self.sock.getsockname())
        self.woken = threading.Event()
        self.lifeline, self.held = os.pipe()
        fast = Store(folder, wait_s=0, cuts=False)
        self.receiver = Receiver(self.sock, fast, Bound(), self.woken.set)
        self.thread = threading.Thread(target=self.receiver.run, args=[self.lifeline])

    def end(self) -> None:
        """End the receiver as the agent does; afterwards all received operations are in the
        queue."""
        os.close(self.held)
        self.thread.join(60)
        assert not self.thread.is_alive()
        os.close(self.lifeline)


@contextmanager
def _scene(folder: Path) -> Iterator[Scene]:
    scene = Scene(folder)
    scene.thread.start()
    yield scene
    if scene.thread.is_alive():
        scene.end()
    for each in (scene.sender, scene.listener, scene.store):
        each.close()


def test_a_lone_datagram_does_not_wait(tmp_path: Path) -> None:
    """It is in the queue, and the sender is woken, as soon as nothing follows it."""
    with _scene(tmp_path) as scene:
        scene.sender.send(operation("a"))
        assert scene.woken.wait(60)

        assert scene.store.totals().events == 1


def test_a_busy_disk_is_not_waited_for(tmp_path: Path) -> None:
    """Datagrams stay in memory while another transaction is open, and follow in order."""
    with _scene(tmp_path) as scene:
        with scene.store.transaction():
            for n in range(500):
                scene.sender.send(operation(n))
            assert not scene.woken.wait(0.1)
            assert kernel_drops(os.fstat(scene.sock.fileno()).st_ino) == 0
        scene.end()

        assert scene.store.totals().events == 500


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk blocks, operations above the limit are discarded and counted."""
    monkeypatch.setattr(receiver, "PENDING_MAX", 300)
    with _scene(tmp_path) as scene:
        with scene.store.transaction():
            for n in range(2_000):
                scene.sender.send(operation(n))
            assert not scene.woken.wait(0.3)
        scene.end()
        totals = scene.store.totals()

    assert 0 < totals.events <= 300
    assert totals.events + totals.discarded == 2_000


def test_the_kernels_buffer_is_emptied_at_the_end(tmp_path: Path) -> None:
    """Datagrams that arrived before the end are received."""
    scene = Scene(tmp_path)
    for n in range(3_000):
        scene.sender.send(operation(n))
    os.close(scene.held)
    scene.receiver.run(scene.lifeline)

    assert scene.store.totals().events == 3_000


def test_the_kernels_drops_are_known(tmp_path: Path) -> None:
    """They are read by the socket's inode if the system has the table."""
    table = tmp_path / "udp"
    table.write_text("sl local rem st queue tr retr uid timeout inode ref pointer drops\n")
    with table.open("a") as file:
        file.write(
            "1: 0:0 0:0 07 0:0 00:0 0 0 0 4711 2 0 42\n1: 0:0 0:0 07 0:0 00:0 0 0 0 8 2 0 7\n"
        )

    assert kernel_drops(4711, (tmp_path / "none", table)) == 42
    assert kernel_drops(1, (table,)) is None


def test_one_port_for_both(tmp_path: Path) -> None:
    """TCP and UDP under one number; a port that one of them lacks is not taken at all."""
    listener, datagrams = bind_ports("127.0.0.1", 0)
    with listener, datagrams:
        assert listener.getsockname() == datagrams.getsockname()
        assert datagrams.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) > 200_000

    listener, other = bind_ports("127.0.0.1", 0)  # a port that is free for TCP
    with other:
        listener.close()
        with pytest.raises(Problem, match="address already in use"):
            bind_ports(*other.getsockname())
        with socket.socket() as free:
            free.bind(other.getsockname())


@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)])
def test_delays_grow_as_oplogs_did(chance: float, share: float) -> None:
    """They grow by half from half a second to a minute, and each varies by up to half."""
    retrying = Retrying(lambda: chance)
    delays = [retrying.next_s() for _ in range(20)]

    assert delays[:3] == pytest.approx([0.5 * share, 0.75 * share, 1.125 * share])
    assert delays[-1] == pytest.approx(DELAY_S_MAX * share)
    retrying.reset()
    assert retrying.next_s() == pytest.approx(0.5 * share)


def test_a_line_a_minute_of_each_kind() -> None:
    """An outage does not fill the journal."""
    said: list[str] = []
    now_s = 100.0
    notices = Notices(said.append, lambda: now_s)
    for _ in range(3):
        notices.report("away", "the target is away")
        notices.report("error", "junk")
    assert said == ["the target is away", "junk"]
    now_s += NOTICE_EVERY_S
    notices.report("away", "still away")

    assert said == ["the target is away", "junk", "still away"]


def test_refused_operations_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One a line, as `tidings post --file` takes them; the file does not grow for ever."""
    assert sender.keep(tmp_path, [b"a", b"b"])
    assert sender.keep(tmp_path, [b"c"])
    monkeypatch.setattr(sender, "REFUSED_BYTES_MAX", 6)
    assert not sender.keep(tmp_path, [b"d"])

    assert (tmp_path / sender.REFUSED).read_bytes() == b"a\nb\nc\n"


def test_where_the_queue_is_by_default() -> None:
    """It is the folder for a user's own persistent files; a relative path in the variable is
    ignored."""
    home = Path("/home/ann")

    assert default_folder(home, "") == Path("/home/ann/.local/state/tidings/agent")
    assert default_folder(home, "/var/lib") == Path("/var/lib/tidings/agent")
    assert default_folder(home, "state") == default_folder(home, "")


class Door:
    """An application over a queue, and how often it said that the queue grew."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.store.prepare("main")
        self.grown = 0
        committing = Committing(self.store, Bound(), self._grow)
        self.application = Application(committing, dict)

    def _grow(self) -> None:
        self.grown += 1

    async def post(
        self, body: bytes, *, gone: bool = False, encoding: str = "identity"
    ) -> list[Message]:
        """Return the messages of the answer; *gone*: the producer disconnects in the middle of its
        body.
        """
        headers = [(b"content-type", b"application/json"), (b"content-encoding", encoding.encode())]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
        parts: list[dict[str, Any]] = [
            {"type": "http.request", "body": body[:10], "more_body": True},
            {"type": "http.disconnect"} if gone else {"type": "http.request", "body": body[10:]},
        ]
        said: list[Message] = []

        async def receive() -> dict[str, Any]:
            return parts.pop(0)

        async def send(message: Message) -> None:
            said.append(message)

        await self.application(scope, receive, send)
        return said


def test_requests_at_the_same_time_share_a_write(tmp_path: Path) -> None:
    """Fifty producers do not wait for fifty writes; each operation is queued once."""
    door = Door(tmp_path)

    async def scene() -> list[list[Message]]:
        return await asyncio.gather(*[door.post(operation(n)) for n in range(50)])

    answers = asyncio.run(scene())

    assert {said[0]["status"] for said in answers} == {204}
    assert door.store.totals().received == 50
    assert door.grown <= 3


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(operation("a")), "gzip", 204),
        (gzip.compress(operation("a"))[:-1], "gzip", 400),
        (gzip.compress(b" " * 100_000_000), "gzip", 413),
        (operation("a"), "gzip", 400),
        (operation("a"), "br", 415),
    ],
    ids=["gzip", "early", "bomb", "plain", "other"],
)
def test_a_body_is_decompressed(tmp_path: Path, body: bytes, encoding: str, status: int) -> None:
    """The size is limited as for requests; the queue stores operations and not gzip."""
    door = Door(tmp_path)
    said = asyncio.run(door.post(body, encoding=encoding))

    assert said[0]["status"] == status
    assert door.store.totals().received == (status == 204)


def test_a_damaged_queue_is_said(tmp_path: Path) -> None:
    door = Door(tmp_path)
    for pragma in ("wal_checkpoint(TRUNCATE)", "shrink_memory"):
        door.store.read(f"PRAGMA {pragma}")
    with open(tmp_path / NAME, "r+b") as file:
        file.seek(4096)  # after the first page, which was read already
        file.write(b"x" * 200_000)
    start, body = asyncio.run(door.post(operation("a")))
    assert start["status"] == 503 and b"malformed" in body["body"]


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    """Each waiting request gets 503 with a time to retry; then requests succeed again."""
    door = Door(tmp_path)
    ((pages,),) = door.store.read("PRAGMA page_count")
    door.store.read(f"PRAGMA max_page_count = {pages}")
    large = operation("a", data="x" * 60_000)

    async def scene() -> list[list[Message]]:
        return list(await asyncio.gather(door.post(large), door.post(large)))

    for start, body in asyncio.run(scene()):
        assert start["status"] == 503
        assert (b"retry-after", b"1") in start["headers"]
        assert json.loads(body["body"])["error"]["code"] == "unavailable"
    door.store.read("PRAGMA max_page_count = 100000")
    assert asyncio.run(door.post(large))[0]["status"] == 204
    assert door.application.errors == 0


def test_half_a_request_is_none(tmp_path: Path) -> None:
    """A producer that leaves before its body ends has posted nothing."""
    door = Door(tmp_path)

    assert asyncio.run(door.post(operation("a"), gone=True)) == []
    assert door.store.totals().received == 0
