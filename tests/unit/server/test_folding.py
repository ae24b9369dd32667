"""A damaged fold finds the difference within a heartbeat, and repairs only that bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.proxied import serving
from tests.proxy import Proxy
from tidings.client import Event, Fold
from tidings.client import fold as folding
from tidings.client.fold import Held
from tidings.client.reconnect import Transport
from tidings.core.model.cursors import Place
from tidings.core.state.rows import bucket_of
from tidings.server.running import Server

CHECK_EVERY_S = 0.1
PATIENCE_S = 180.0  # none takes four on an idle machine
HEARTBEAT_S = 20.0
NAMES = [f"x{number}" for number in range(40)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


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


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
