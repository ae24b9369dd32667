"""The stream as oplogc reads it, and rows O74 to O78 as an operator sees them."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.oplogc import Consumer, Decoder, Event, InFlight, InvalidEvent
from tests.compat.oplog.wire import until
from tests.unit.client.command import TIDINGS
from tidings.client import Poster
from tidings.core.catchup.sse import RESUME
from tidings.core.model import cursors
from tidings.server.running import Server

DATA = b'data: {"timestamp":"2026-11-20T17:19:10.94Z","parents":null,"type":"v","id":"x"}'


def _decoded(stream: bytes) -> list[Event]:
    decoder = Decoder()
    return [event for line in stream.split(b"\n")[:-1] if (event := decoder.line(line))]


def test_comments_and_blank_lines_are_nothing() -> None:
    """Heartbeats between and inside blocks, and events with and without their own id."""
    stream = b":\n\n: hello\n\nid: 1\n:\nevent: reset\n\nevent: insert\n%b\n\n" % DATA

    assert [(event.id, event.name) for event in _decoded(stream)] == [
        ("1", "reset"),
        ("1", "insert"),
    ]


def test_when_to_resume_may_be_said_inside_an_event() -> None:
    """A stream's first event has it. oplogc cannot parse it in a block of its own (next test)."""
    told = RESUME.encode() + b"id: 1\nevent: reset\n\n"

    assert [(event.id, event.name) for event in _decoded(told)] == [("1", "reset")]


@pytest.mark.parametrize(
    "block",
    [
        b"retry: 3000\n\n",
        b"id: 5\n\n",
        b"id: 5\nevent: insert\n\n",
        b"event: insert\ndata: {\n\n",
        b"event: insert\n%b\n%b\n\n" % (DATA, DATA),
        b'event: insert\ndata: {"timestamp":"2026-11-20","type":"v","id":"x"}\n\n',
        b'event: insert\ndata: {"timestamp":"2026-11-20T17:19:10Z","type":"v","id":5}\n\n',
    ],
)
def test_blocks_that_oplogc_cannot_take(block: bytes) -> None:
    """Without an event, without data, or with data that is not an operation."""
    with pytest.raises(InvalidEvent):
        _decoded(block)


def test_other_line_endings_end_nothing() -> None:
    """With CRLF an event never ends: oplogc would hang."""
    assert _decoded(b"id: 1\r\nevent: reset\r\n\r\n") == []


def test_only_the_oldest_moves_the_position() -> None:
    """As in oplogc: an acknowledgement before the oldest event does not count afterwards."""
    flight = InFlight("0")
    for event_id in ("a", "b", "c", "c"):
        flight.push(event_id)
    flight.done("b")
    flight.done("a")
    assert (flight.last_id, flight.ids) == ("a", ["c"])


def _consumer(feed: Feed, folder: Path, position: str, **filters: Any) -> Consumer:
    """Return a consumer that was at *position* when it ended."""
    (folder / "seen").write_text(position)
    url = f"http://127.0.0.1:{feed.port}{feed.path}"
    return Consumer(url, state_file=folder / "seen", **filters)


def _names(events: list[Event]) -> list[str]:
    return [f"{event.name} {event.data.get('id', '')}".strip() for event in events]


def test_O44_a_full_replication_then_the_log(feed: Feed, tmp_path: Path) -> None:
    """Every block from the reset to the live operations is one that oplogc takes."""
    feed.post(*[op(f"x{number}", data={"text": "<é&\u2028>\r\n"}) for number in range(50)])
    feed.post(op("x0", "delete"))
    feed.settle()
    consumer = _consumer(feed, tmp_path, "0")
    events = consumer.connection()
    copied = []
    for event in events:
        copied.append(event)
        consumer.done(event)
        if event.name == "live":
            break
    feed.post(op("x1", "update"), op("x2", "delete"))
    last = list(islice(events, 2))

    assert _names(copied)[0] == "reset"
    assert sorted(_names(copied)[1:-1]) == sorted(f"insert x{number}" for number in range(1, 50))
    assert _names(last) == ["update x1", "delete x2"]


def test_O49_every_position_in_a_replication_resumes(feed: Feed, tmp_path: Path) -> None:
    """Cut after each event in turn and connected again: one reset, and no object is missing."""
    feed.post(*[op(f"x{number}") for number in range(12)])
    feed.settle()
    consumer = _consumer(feed, tmp_path, "0")
    seen: list[str] = []
    for life in range(2, 60):
        for event in islice(consumer.connection(), life):
            seen.append(event.name if not event.data else event.data["id"])
            consumer.done(event)
            if event.name == "live":
                break
        if seen[-1] == "live":
            break

    assert seen.count("reset") == 1
    assert seen[-1] == "live"
    assert {f"x{number}" for number in range(12)} <= set(seen)


PATIENCE_S = 180.0  # a restart of the feed and the longest wait of a client
QUIET_S = 1.5  # an event that has not arrived by then was not sent
PASSWORD, OTHER = "correct horse", "battery staple"
OLD_SERVER = "545B55C7F095528DD0F3863C"  # an ObjectId of 2014
OPLOG_STATE = re.compile(r"(?:[0-9]{0,13}|[0-9a-f]{24})\Z", re.ASCII)
_LINE = "{event}  {object}  [{parents}]  {cursor}"
CLIENTS = {
    "tail": [*TIDINGS, "tail", "--format", _LINE],
    "tail --transport sse": [*TIDINGS, "tail", "--format", _LINE, "--transport", "sse"],
    "oplogc": [sys.executable, "-m", "tests.compat.oplog.oplogc"],
}
every_client = pytest.mark.parametrize("client", CLIENTS)


class Tail:
    """A running client, and its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def until(self, wanted: str) -> list[str]:
        """Return the output up to the line with *wanted*."""
        found: list[str] = []
        while not found or wanted not in found[-1]:
            found.append(self._lines.get(timeout=PATIENCE_S))
        return found

    def rest(self) -> list[str]:
        """Return the output until it has been quiet for a while."""
        found = []
        try:
            while True:
                found.append(self._lines.get(timeout=QUIET_S))
        except queue.Empty:
            return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self._lines.put(text.strip())


@contextmanager
def _tail(client: str, host: Server, *arguments: str) -> Iterator[Tail]:
    command = [*CLIENTS[client], *arguments, host.url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield Tail(process)
        finally:
            process.kill()


def _post(host: Server, event: str, *names: str, **fields: object) -> None:
    with Poster(host.url, password=OTHER) as poster:
        poster.post([{"event": event, "type": "video", "id": name, **fields} for name in names])


def _saves(state: Path, event_id: str) -> None:
    """Wait until the file holds *event_id*, or the end of its page: nothing else is in it."""
    last = f"{event_id[:18]}{cursors.PAGE_END:06x}"
    until(lambda: event_id <= state.read_text() <= last)


def _id(line: str) -> str:
    return line.split()[-1]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Guarded by passwords, as an old server was by `-password` and `-ingest-password`."""
    folder = tmp_path_factory.mktemp("passwords")
    (folder / "read").write_text(PASSWORD)
    (folder / "ingest").write_text(OTHER)
    guards = ("--read-password-file", folder / "read", "--ingest-password-file", folder / "ingest")
    with Server("--leave", *map(str, guards), data=folder / "data") as running:
        yield running


@every_client
def test_O74_a_copy_then_operations(client: str, guarded: Server, tmp_path: Path) -> None:
    """`** reset`, rows, `** live`, operations; the file holds the last acknowledged id."""
    state = tmp_path / "seen"
    options = ("--state-file", str(state), "--allow-replication", "--password", PASSWORD)
    _post(guarded, "insert", f"{client} 1", f"{client} 2")
    with _tail(client, guarded, *options) as tail:
        copied = tail.until("** live")
        _post(guarded, "update", f"{client} 3")
        after = tail.until(f"video/{client} 3")
        _saves(state, _id(after[-1]))

    assert copied[0].startswith("** reset")
    assert all(any(f"video/{client} {number}" in line for line in copied) for number in (1, 2))
    assert "update" in after[-1]
    assert OPLOG_STATE.match(state.read_text())


@every_client
def test_O75_killed_and_started_again(client: str, guarded: Server, tmp_path: Path) -> None:
    """Changes during the outage arrive, in order, and no second reset."""
    state = tmp_path / "seen"
    options = ("--state-file", str(state), "--allow-replication", "--password", PASSWORD)
    with _tail(client, guarded, *options) as tail:
        _saves(state, _id(tail.until("** live")[-1]))
        tail.kill()
    names = [f"{client} after {number}" for number in range(3)]
    for name in names:
        _post(guarded, "insert", name)
    with _tail(client, guarded, *options) as tail:
        found = tail.until(names[-1])

    assert not any("** reset" in line for line in found)
    assert [name for line in found for name in names if f"video/{name}" in line] == names


@every_client
@pytest.mark.parametrize("given", [[], ["--password", "wrong"], ["--password", OTHER]])
def test_O76_a_wrong_password(client: str, given: list[str], guarded: Server) -> None:
    """None, a wrong one, or the one for posting: the client ends and says why."""
    command = [*CLIENTS[client], *given, guarded.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    assert done.returncode == 1
    assert "invalid credentials" in done.stderr
    assert done.stdout == ""


@every_client
def test_O77_a_state_file_of_the_old_server(client: str, guarded: Server, tmp_path: Path) -> None:
    """An ObjectId is taken for its time: the objects changed since, `live`, then operations."""
    state = tmp_path / "seen"
    state.write_text(OLD_SERVER.lower())
    _post(guarded, "insert", f"{client} old")
    with _tail(client, guarded, "--state-file", str(state), "--password", PASSWORD) as tail:
        copied = tail.until("** live")
        _post(guarded, "insert", f"{client} new")
        tail.until(f"video/{client} new")

    assert any(f"video/{client} old" in line for line in copied)


@every_client
def test_O78_a_restart_of_the_server(client: str, guarded: Server, tmp_path: Path) -> None:
    """Killed and started under a connected client: it comes back by itself and misses nothing."""
    state = tmp_path / "seen"
    options = ("--state-file", str(state), "--allow-replication", "--password", PASSWORD)
    with _tail(client, guarded, *options) as tail:
        tail.until("** live")
        _post(guarded, "insert", f"{client} before")
        tail.until(f"video/{client} before")
        guarded.kill()
        guarded.start()
        names = [f"{client} after {number}" for number in range(3)]
        for name in names:
            _post(guarded, "insert", name)
        found = [*tail.until(names[-1]), *tail.rest()]

    assert not any("** reset" in line for line in found)
    assert [name for line in found for name in names if f"video/{name}" in line] == names


def test_O74_without_a_state_file_there_is_no_copy(guarded: Server) -> None:
    """The option `--allow-replication` alone is ignored, which oplog-tail does, too."""
    _post(guarded, "insert", "ignored")
    with _tail("tail", guarded, "--allow-replication", "--password", PASSWORD) as tail:
        assert tail.rest() == []


@pytest.mark.parametrize("client", ["tail", "tail --transport sse"])
def test_what_leaves_a_filter_is_told_to_who_asks(client: str, guarded: Server) -> None:
    """`--leave`: an object moved elsewhere is announced once more, as `leave`."""
    inside, outside = f"{client} in", f"{client} out"
    _post(guarded, "update", client, parents=[inside])
    options = ("--from", "0", "--parents", inside, "--leave", "--password", PASSWORD)
    with _tail(client, guarded, *options) as tail:
        tail.until("** live")
        _post(guarded, "update", client, parents=[outside])
        found = tail.until(f"[{outside}]")

    assert re.search(rf"leave +video/{client} ", found[-1])
