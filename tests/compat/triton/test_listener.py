"""The listener library against a server that misbehaves on demand, and against a feed."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.compat.oplog.wire import until
from tests.compat.triton.publisher import ROUTE, Peer, Publisher
from tests.compat.triton.wire import ChangeFeed, item
from tests.unit.client.command import TIDINGS
from tidings.client import AccessDenied, BackoffFailed, Listener, MemoryBuffer, SqliteBuffer
from tidings.client.cli.main import main
from tidings.client.listener import (
    Bootstrap,
    Buffer,
    Ended,
    Item,
    Live,
    Object,
    RefusedRegistration,
    Signal,
)
from tidings.client.retries import Backoff

BOOTSTRAP = Bootstrap("vm", ("nic",), "/vms")
QUICK: dict[str, Any] = {"min_timeout_s": 0.01, "max_timeout_s": 0.02}


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as serving:
        yield serving


@pytest.fixture(params=["memory", "sqlite"])
def buffer(request: pytest.FixtureRequest, tmp_path: Path) -> Buffer:
    """Each kind, with room for three."""
    return MemoryBuffer(3) if request.param == "memory" else SqliteBuffer(tmp_path / "items", 3)


def listener(publisher: Publisher, **options: Any) -> Listener:
    named = {"instance": "i1", "service": "tcns", "resources": {"vm": ["nic"]}, **QUICK}
    return Listener(publisher.url, **{**named, **options})


def name_of(signal: Signal) -> str:
    return signal.id if isinstance(signal, Item) else type(signal).__name__


def test_a_registration_says_what_the_proposal_says(publisher: Publisher) -> None:
    """One resource in the first version, more in the second; then a route for each."""
    with listener(publisher) as one:
        signals = iter(one)
        threading.Thread(target=lambda: publisher.next()).start()
        assert next(signals) == BOOTSTRAP
    with listener(publisher, resources={"vm": ["nic"], "net": []}) as several:
        found: list[Signal] = []
        thread = threading.Thread(target=lambda: found.extend(_take(several, 2)))
        thread.start()
        peer = publisher.next(bootstrapRoutes=[ROUTE, {**ROUTE, "resource": "net"}])
        thread.join()
    assert found == [BOOTSTRAP, Bootstrap("net", ("nic",), "/vms")]
    assert peer.said["resources"] == [
        {"resource": "vm", "subResources": ["nic"]},
        {"resource": "net", "subResources": []},
    ]


def _take(signals: Listener, count: int) -> list[Signal]:
    found: list[Signal] = []
    for signal in signals:
        found.append(signal)
        if len(found) == count:
            break
    return found


class Heard:
    """The events of a listener, collected by a thread; *slowly* delays it at each object."""

    def __init__(self, listening: Listener) -> None:
        self.listening = listening
        self.names: list[str] = []
        self.signals: list[Signal] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for signal in self.listening:
                self.signals.append(signal)
                self.names.append(name_of(signal))
        except Exception as error:  # noqa: BLE001 the test looks at it
            self.error = error

    def until(self, *names: str) -> None:
        until(lambda: self.names[-len(names) :] == list(names))

    def ended(self) -> None:
        until(lambda: not self._thread.is_alive())


def test_F35_F37_every_reconnect_begins_with_a_bootstrap(publisher: Publisher) -> None:
    """Before any item, however often the connection ends."""
    with listener(publisher) as listening:
        heard = Heard(listening)
        for number in range(3):
            peer = publisher.next()
            peer.publish(f"x{number}")
            heard.until("Bootstrap", "Live", f"x{number}")
            peer.end()
    assert heard.names[:4] == ["Bootstrap", "Live", "x0", "Ended"]


def test_F35_it_fails_after_so_many_retries(publisher: Publisher) -> None:
    """A bootstrap in between resets the count."""
    with listener(publisher, retries=2) as listening:
        heard = Heard(listening)
        publisher.next(error="no route").gone()
        publisher.next().end()
        publisher.next(error="no route").gone()
        publisher.next(error="no route").gone()
        heard.ended()
    assert isinstance(heard.error, BackoffFailed) and str(heard.error) == "Backoff failed"
    assert heard.names.count("Ended") == 3


def test_F35_F36_delays_double_up_to_their_bound() -> None:
    """With half of each at random; a reset makes them short again; the bound is the one given."""
    longest = Backoff(0.1, 20.0, None, chance=lambda: 1.0)
    delays = [longest.next_s() for _ in range(10)]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 20.0, 20.0])
    longest.reset()
    assert longest.next_s() == pytest.approx(0.1)
    assert Backoff(4.0, 8.0, None, chance=lambda: 0.0).next_s() == pytest.approx(2.0)
    with pytest.raises(ValueError, match="max_timeout_s"):
        Backoff(2.0, 1.0, None)


def test_F38_the_first_message_is_a_bootstrap_and_no_other(publisher: Publisher) -> None:
    """Anything else first, or a second one, ends the connection."""
    with listener(publisher) as listening:
        heard = Heard(listening)
        publisher.next(**item("x1")).gone()
        peer = publisher.next()
        heard.until("Ended", "Bootstrap", "Live")
        peer.tell(ROUTE)
        assert peer.gone()
        publisher.next()
        heard.until("Ended", "Bootstrap", "Live")
    ended = [signal.reason for signal in heard.signals if isinstance(signal, Ended)]
    assert ended == ["Invalid socket state", "Invalid socket state"]


def test_F39_items_wait_for_the_bootstrap(publisher: Publisher, buffer: Buffer) -> None:
    """They are delivered after it, in their order, in every kind of buffer."""
    peers: list[Peer] = []

    def fetch(bootstrap: Bootstrap) -> Iterator[dict[str, str]]:
        yield {"id": "o1"}
        peers[0].publish("x1", "x2", "x3")
        until(lambda: len(buffer) == 3)
        yield {"id": "o2"}

    with listener(publisher, buffer=buffer, fetch=fetch) as listening:
        peer_came = threading.Thread(target=lambda: peers.append(publisher.next()))
        peer_came.start()
        signals = iter(listening)
        assert next(signals) == BOOTSTRAP
        peer_came.join()
        found = [next(signals) for _ in range(6)]
    assert found[:3] == [Object("vm", {"id": "o1"}), Object("vm", {"id": "o2"}), Live()]
    assert [name_of(signal) for signal in found[3:]] == ["x1", "x2", "x3"]


def test_F40_an_overflow_begins_anew(publisher: Publisher, buffer: Buffer) -> None:
    """The buffer is cleared, the connection ends, and a new registration is bootstrapped."""
    peers: list[Peer] = []
    overflows = [True]

    def fetch(bootstrap: Bootstrap) -> Iterator[dict[str, str]]:
        yield {"id": "o1"}
        if overflows:
            overflows.pop()
            peers[0].publish("x1", "x2", "x3", "x4")
            assert peers[0].gone()
            assert len(buffer) == 0
        yield {"id": "o2"}

    with listener(publisher, buffer=buffer, fetch=fetch) as listening:
        signals = iter(listening)
        threading.Thread(target=lambda: peers.append(publisher.next())).start()
        assert next(signals) == BOOTSTRAP
        until(lambda: peers)
        assert [name_of(next(signals)) for _ in range(2)] == ["Object", "Ended"]
        threading.Thread(target=lambda: publisher.next().publish("x5")).start()
        found = [name_of(next(signals)) for _ in range(5)]
    assert found == ["Bootstrap", "Object", "Object", "Live", "x5"]


def test_F41_a_closed_listener_does_not_come_back(publisher: Publisher) -> None:
    """Its iteration ends, whatever it was at: waiting for an item, or for its next attempt."""
    heard = Heard(listener(publisher))
    peer = publisher.next()
    heard.until("Live")
    heard.listening.close()
    assert peer.gone()
    heard.ended()
    waiting = Heard(listener(publisher, min_timeout_s=3600, max_timeout_s=3600))
    publisher.next().end()
    waiting.until("Ended")
    waiting.listening.close()
    waiting.ended()
    assert (heard.error, waiting.error) == (None, None)


def test_a_server_that_is_silent_is_left(publisher: Publisher) -> None:
    """It is pinged; a pong keeps the connection, one that has forgotten us ends it."""
    with listener(publisher, heartbeat_s=0.05) as listening:
        heard = Heard(listening)
        peer = publisher.next()
        assert json.loads(peer.hear()) == {"action": "ping"}
        peer.tell({"reply": "pong", "state": "live"})
        assert json.loads(peer.hear()) == {"action": "ping"}
        peer.tell('{"reply":"pong","state":"open"}')
        assert peer.gone()
        heard.until("Bootstrap", "Live", "Ended")


def test_F37_F39_a_listener_of_a_feed_misses_nothing(feed: ChangeFeed, tmp_path: Path) -> None:
    """The existing objects, by the feed's own route, and the changes during and after it."""
    feed.publish(*(item(f"x{number}", "a", resource="own") for number in range(20)))
    feed.post({"event": "update", "type": "other", "id": "no", "changed": ["a"]})
    with Listener(
        f"http://127.0.0.1:{feed.port}",
        feed=feed.name,
        instance="i1",
        service="tcns",
        resources={"own": ["a"]},
        buffer=SqliteBuffer(tmp_path / "items"),
    ) as listening:
        known: set[str] = set()
        for signal in listening:
            if isinstance(signal, Object):
                known.add(str(signal.fields["id"]))
            elif isinstance(signal, Item):
                known.add(signal.id)
            elif isinstance(signal, Live):
                feed.publish(item("late", "a", resource="own"))
            if "late" in known:
                break
    assert known == {f"x{number}" for number in range(20)} | {"late"}


def test_a_wrong_password_is_final() -> None:
    """No other server would say otherwise."""
    listening = Listener("http://x", instance="i", service="s", resources={"vm": []})
    with pytest.raises(AccessDenied):
        listening._end_of(RefusedRegistration("password: must be the read password of the feed"))


def test_F42_snoop_prints_what_matches(feed: ChangeFeed) -> None:
    """One line of JSON for each item; a resource that is unknown, or none, is exit code 1."""
    url = ["--url", f"http://127.0.0.1:{feed.port}", "--feed", feed.name]
    for missing in (["-r", "vm"], ["-s", "nic"], []):
        done = CliRunner().invoke(main, ["snoop", *missing, *url])
        assert done.exit_code == 1 and "Usage:" in done.stderr
    refused = CliRunner().invoke(main, ["snoop", "-r", "disk", "-s", "x", *url])
    assert (refused.exit_code, refused.stderr) == (1, "Error: unknown resource: disk\n")


def test_F42_snoop_in_a_shell(feed: ChangeFeed) -> None:
    """Run it like an operator: items arrive as they are published, others do not."""
    command = [*TIDINGS, "snoop", "-r", "vm", "-s", "nic"]
    url = ["--url", f"http://127.0.0.1:{feed.port}", "--feed", feed.name]
    with subprocess.Popen([*command, *url], stdout=subprocess.PIPE, text=True) as snoop:
        assert snoop.stdout is not None
        until(lambda: feed.stats()["listeners"] == 1)
        feed.publish(item("no", "alias"), item("x1", "nic", note=1))
        heard = json.loads(snoop.stdout.readline())
        snoop.terminate()
    assert heard.pop("published").isdigit()
    assert heard == item("x1", "nic", note=1)
