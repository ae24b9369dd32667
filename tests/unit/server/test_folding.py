"""Folds of the state that repair their differences, and filter values with special characters."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compat.oplog.wire import until
from tests.proxied import serving
from tests.proxy import Proxy
from tidings.client import Consumer, Event, Fold, Worker
from tidings.client import fold as folding
from tidings.client.fold import Held
from tidings.client.reconnect import Transport
from tidings.core.model.cursors import Place
from tidings.core.model.filters import as_text
from tidings.core.state.rows import bucket_of
from tidings.server.running import Server

CHECK_EVERY_S = 0.1
HEARTBEAT_S = 20.0
NAMES = [f"x{number}" for number in range(40)]


def post(server: Server, kind: str, *operations: tuple[str, str]) -> None:
    body = [{"event": event, "type": kind, "id": name} for event, name in operations]
    assert httpx.post(f"{server.url}ops", json=body).is_success


class RecordingFold(Fold):
    """Runs in a thread, drops the events of *lost*, and records its findings and its events."""

    lost = ""

    def __init__(self, url: str, **options: Any) -> None:
        self.wrong: list[int] = []
        self.heard: list[str] = []
        super().__init__(url, on_wrong=self.wrong.append, check_every_s=CHECK_EVERY_S, **options)
        self._running = threading.Thread(target=self._run, daemon=True)
        self._running.start()

    def _run(self) -> None:
        for event in self:
            self.heard.append(event.data["id"])

    def _apply(self, event: Event, place: Place) -> bool:
        return event.data["id"] != self.lost and super()._apply(event, place)

    def close(self) -> None:
        super().close()
        self._running.join()

    def living(self) -> set[str]:
        return {key.partition("/")[2] for key, held in dict(self.held).items() if held.data}


def drop(fold: RecordingFold, key: str) -> None:
    fold.held.pop(key)


def double(fold: RecordingFold, key: str) -> None:
    """Make the fold look as if an older operation of the object had been applied again."""
    fold.held[key] = fold.held[key]._replace(slot=fold.held[key].slot - 1)


def invent(fold: RecordingFold, key: str) -> None:
    """Add a row without an operation, at a position that the feed has not reached."""
    fold.held[key] = Held(2**30, 1, {"id": "none"})


@pytest.mark.parametrize("transport", ["ws", "sse"])
@pytest.mark.parametrize("fault", [drop, double, invent])
def test_a_wrong_row_is_found_and_its_bucket_mended(
    server: Server, transport: Transport, fault: Callable[[RecordingFold, str], None]
) -> None:
    """This holds for each kind of fault; other buckets are not read, and no false difference is
    found before.
    """
    kind = "video"
    post(server, kind, *[("insert", name) for name in NAMES])
    with RecordingFold(server.url, transport=transport) as fold:
        until(lambda: "x2" in fold.living())
        post(server, kind, ("update", "x1"), ("delete", "x2"), ("update", "x3"))
        until(lambda: fold.held[f"{kind}/x3"].slot == 2 and "x2" not in fold.living())
        seen = fold.compared
        until(lambda: fold.compared >= seen + 2)
        assert fold.wrong == []
        right = dict(fold.held)
        fault(fold, f"{kind}/x3")
        until(lambda: fold.wrong)
        until(lambda: fold.held == right)
        seen = fold.compared
        until(lambda: fold.compared >= seen + 2)
        assert fold.wrong == [bucket_of(f"{kind}/x3")]


@pytest.mark.parametrize("transport", ["ws", "sse"])
@pytest.mark.parametrize("event", ["insert", "delete"])
def test_a_lost_event_is_found(server: Server, transport: Transport, event: str) -> None:
    """This includes the last event of an idle feed."""
    kind = f"lost-{transport}-{event}"
    post(server, kind, ("insert", "y1"), ("insert", "y2"))
    with RecordingFold(server.url, transport=transport, types=[kind]) as fold:
        until(lambda: fold.living() == {"y1", "y2"} and fold.compared >= 2)
        fold.lost = "y2" if event == "delete" else "y3"
        post(server, kind, (event, fold.lost))
        until(lambda: fold.wrong)
        assert fold.wrong == [bucket_of(f"{kind}/{fold.lost}")]
        wanted = {"y1"} if event == "delete" else {"y1", "y2", "y3"}
        until(lambda: fold.living() == wanted)


class Stalling(Proxy):
    """Forwards nothing while `open` is not set, like a suspended process."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.open = threading.Event()
        self.open.set()
        self.carried = 0

    def passes(self, chunk: bytes) -> bytes:
        self.carried += len(chunk)
        self.open.wait()
        return chunk


def fold_through(proxy: Proxy, server: Server, kind: str) -> RecordingFold:
    return RecordingFold(server.url, types=[kind], ws_url=f"ws://127.0.0.1:{proxy.port}/ws")


def test_what_is_under_way_is_taken_from_the_log(server: Server) -> None:
    """A stalled connection does not count as a difference: its events come once, from either
    source."""
    kind = "late"
    post(server, kind, ("insert", "z1"))
    proxy = Stalling(server.port)
    with serving(proxy), fold_through(proxy, server, kind) as fold:
        until(lambda: fold.compared >= 2 and fold.living() == {"z1"})
        fold.heard.clear()  # the state may have been behind when it began
        assert proxy.carried > 0
        proxy.open.clear()
        post(server, kind, ("update", "z1"), ("insert", "z2"), ("delete", "z1"))
        post(server, kind, ("insert", "z3"))
        until(lambda: fold.living() == {"z2", "z3"})
        proxy.open.set()
        post(server, kind, ("insert", "z4"))
        until(lambda: fold.heard[-1:] == ["z4"])
        assert fold.heard == ["z1", "z2", "z1", "z3", "z4"]
        assert fold.wrong == []


def test_a_busy_feed_is_not_found_wrong(server: Server) -> None:
    """Operations that arrive between the sums and the events do not count as a difference."""
    kind = "busy"
    with RecordingFold(server.url) as fold:
        ends = time.monotonic() + 1.5
        while time.monotonic() < ends:
            post(server, kind, *[("update", name) for name in NAMES[:10]], ("delete", "x4"))
        assert fold.compared >= 3
        assert fold.wrong == []


def known_sums(server: Server) -> dict[str, Any]:
    """Return the sums, as soon as the feed knows all of them."""
    told: dict[str, Any] = {}

    def ask() -> bool:
        told.update(httpx.get(f"{server.url}feeds/main/sums").json())
        return None not in told["sums"] and told["page"] > 0

    until(ask)
    return told


def test_20_3_sums_are_counted_when_somebody_asks(tmp_path: Path) -> None:
    """This holds on an idle feed too, and again after a restart of the server."""
    with Server(data=tmp_path) as server:
        post(server, "kept", *[("insert", name) for name in NAMES])
        known = known_sums(server)
    with Server(data=tmp_path) as server:
        assert known_sums(server) == known


def test_it_is_found_within_one_heartbeat() -> None:
    """This is the default."""
    assert folding.CHECK_EVERY_S < HEARTBEAT_S


PATIENCE_S = 180.0
START = "0000000000000000007fffff"  # a cursor before the first page
VALUES = ["p/a,p/b", "a&b=c", "50%2C", "a+b", "\u00e9\u2028", " a ", "*", '["x"]']
DECOYS = ["p/a", "p/b", "a", "50", "50,", "a b", "\u00c3\u00a9", "x", "["]
ANY = ("ids", "*")  # matches all ids
transports = pytest.mark.parametrize("transport", ["sse", "ws"])


@pytest.fixture(scope="module")
def filled() -> Iterator[Server]:
    """Has an object for each of VALUES and DECOYS, which has that parent and that id."""
    with Server() as running:
        objects = [*DECOYS, *VALUES, "fence"]
        operations = [
            {"event": "update", "type": "t", "id": each, "parents": [each]} for each in objects
        ]
        httpx.post(running.url, json=operations).raise_for_status()
        yield running


@transports
@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for value in VALUES for field in ("parents", "ids") if (field, value) != ANY],
)
def test_7_2_a_value_matches_itself_alone(
    filled: Server, transport: Transport, field: str, value: str
) -> None:
    """In the log, by its name as a parent and as an id; only an id may end with a wildcard."""
    wanted: dict[str, Any] = {field: (value, "fence")}
    with closing(Consumer(filled.url, transport=transport, cursor=START, **wanted)) as all_:
        told = [each.event.data["id"] for each in islice(all_, 2)]

    assert told == [value, "fence"]


@transports
def test_7_2_a_worker_is_sent_what_its_consumer_names(filled: Server, transport: str) -> None:
    """P14.3: it acknowledges nothing else."""
    name = f"by-{transport}"
    url = f"{filled.url}feeds/main/consumers/{name}"
    httpx.put(url, json={"parents": [*VALUES, "fence"]}).raise_for_status()
    told: list[str] = []
    worker = Worker(filled.url, name, transport=transport)  # type: ignore[arg-type]

    def write(batch: Sequence[tuple[str, str, dict[str, str]]]) -> None:
        told.extend(data["id"] for _, _, data in batch)
        if "fence" in told:
            worker.stop()

    watchdog = threading.Timer(PATIENCE_S, worker.stop)
    watchdog.start()
    worker.run(write)
    watchdog.cancel()

    assert told == [*VALUES, "fence"]


@pytest.mark.parametrize("value", VALUES)
def test_7_2_pages_are_selected_by_whole_values(filled: Server, value: str) -> None:
    """P16.6: a relay copies these pages."""
    answer = httpx.get(f"{filled.url}feeds/main/pages", params={"ids": as_text([value])})
    entries = [json.loads(line) for line in answer.text.splitlines() if '"event"' in line]

    names = [entry["id"] for entry in entries]
    assert names == ([*DECOYS, *VALUES, "fence"] if value == "*" else [value])


@transports
def test_7_2_a_filter_that_is_empty_matches_nothing(filled: Server, transport: Transport) -> None:
    """P7.2: a list of values that no operation has is not the same as no list."""
    name = f"nothing-{transport}"
    url = f"{filled.url}feeds/main/consumers/{name}"
    httpx.put(url, json={"types": [""]}).raise_for_status()
    lease = httpx.post(f"{url}/lease", json={"worker": "w"}).json()
    assert lease["types"] == []

    with closing(Consumer(filled.url, transport=transport, cursor=START, types=("",))) as consumer:
        assert consumer.within(2.0) is None
