"""`python -m bench.load` on a server, and a short soak: nothing is lost."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench import load, soak
from bench.loading import running as loading
from bench.loading.faults import CUT, KILL, PAUSE
from bench.loading.recorder import Interval
from bench.soak import Soak
from tests.compat.oplog.wire import until
from tests.proxied import serving
from tests.proxy import Proxy
from tests.unit.admin.cloudformation import describing
from tidings.client.feed_api import Objects
from tidings.server.running import Server


@pytest.fixture(scope="module")
def host() -> Iterator[Server]:
    with Server() as running:
        yield running


class Lossy(Proxy):
    """Swallows one piece of an event stream."""

    swallowed = 0

    def passes(self, chunk: bytes) -> bytes:
        if not self.swallowed and re.search(rb'^[0-9a-f]+\r\n(.|\n)*"serial":1[0-9]\b', chunk):
            self.swallowed += 1
            return b""
        return chunk


@pytest.fixture
def lossy(host: Server) -> Iterator[Lossy]:
    proxy = Lossy(host.port)
    with serving(proxy):
        yield proxy


def _load(url: str, *options: str) -> Result:
    return CliRunner().invoke(load.main, ["--url", url, "--duration", "4", *options])


def test_everything_is_heard_by_consumers_that_come_and_go(host: Server) -> None:
    """Over both transports, in the one order, and the fold of it is the state."""
    done = _load(host.url, "--rate", "15", "--consumers", "4", "--churn", "60", "--json")
    found = json.loads(done.stdout)

    assert done.exit_code == 0, done.output
    assert found["violations"] == {"count": 0, "first": []}
    assert found["counts"]["sent"] == found["counts"]["acknowledged"] == 60
    assert found["counts"]["heard"] >= 3 * 60
    assert set(found["latency_s"]["SSE, due to receipt"]) >= {"p50", "p99", "max", "count"}
    assert found["machine"]


def test_a_lost_event_is_found(lossy: Lossy, monkeypatch: pytest.MonkeyPatch) -> None:
    """One piece of one stream is swallowed on the way: the exit code is 1, and it is named."""
    monkeypatch.setattr(loading, "DRAIN_S", 3.0)  # the time to wait for a missing event
    done = _load(
        f"http://127.0.0.1:{lossy.port}", "--rate", "10", "--consumers", "2", "--transport", "sse"
    )

    assert lossy.swallowed == 1
    assert done.exit_code == 1, done.output
    assert "VIOLATION sse" in done.stdout


def test_nothing_is_left_in_the_state(host: Server) -> None:
    """A feed that others use holds no object of a load afterwards."""
    done = _load(host.url, "--rate", "20", "--consumers", "1")

    assert done.exit_code == 0, done.output
    with Objects(host.url) as objects:
        until(lambda: not list(objects.all()))  # the state lags the log by a moment


def test_a_stage_is_asked_for_its_addresses(host: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its stack: where to post, where streams are, and where the WebSocket is."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    outputs = {"FeedUrl": host.url, "StreamUrl": host.url, "SocketsUrl": host.ws_url}
    outputs |= {"ControlTable": "control", "Feeds": "main"}
    with describing("tidings-dev", outputs) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", url)
        done = CliRunner().invoke(
            load.main, ["--stage", "dev", "--rate", "5", "--consumers", "2", "--duration", "2"]
        )

    assert done.exit_code == 0, done.output
    assert "WebSocket, due to receipt" in done.stdout
    assert "SSE, due to receipt" in done.stdout


def test_a_feed_that_refuses_is_told(host: Server) -> None:
    """In one sentence, without a traceback."""
    done = _load(host.url, "--feed", "unknown")

    assert done.exit_code == 1
    assert "unknown_feed" in done.stderr
    assert "Traceback" not in done.output


MB = 1024 * 1024


@pytest.mark.parametrize("on", ["server", pytest.param("twin", marks=pytest.mark.java)])
def test_nothing_is_lost_while_everything_fails(on: str) -> None:
    """Each kind of fault is seen to have happened, and the connections to have been lost by it."""
    seconds, rate = (24.0, 6.0) if on == "twin" else (20.0, 50.0)
    soaked = soak.soak(seconds, on=on, rate=rate, every_s=5, quiet=True)
    run = soaked.run

    assert run.violations == []
    assert soaked.of_kind() == Counter(soaked.wanted)
    assert soaked.compared > 0
    assert soaked.wrong == []
    assert run.recorder.counted("connections lost") >= run.plan.consumers
    assert run.recorder.counted("retries") >= 1
    assert run.recorder.counted("acknowledged") == run.plan.total
    assert run.ledger.end == run.plan.total
    store = "engine" if on == "twin" else "gateway"
    sizes = [each.memory.get(store, 0) for each in run.recorder.intervals]
    assert max(sizes) > 40 * MB, "the memory of the store was not seen"
    assert "| violations | 0 |" in soak.section(soaked).markdown()


class _Shown:
    """The part of a run that shows growth."""

    lost = 0

    def __init__(self, intervals: list[Interval]) -> None:
        self.recorder = type("Recorder", (), {"intervals": intervals})()


def _soaked(sizes: list[int]) -> Soak:
    intervals = [
        Interval(100.0 * number, memory={"gateway": size * MB}) for number, size in enumerate(sizes)
    ]
    kinds = (CUT, PAUSE, KILL)
    fired = [(150.0, kind, "") for kind in kinds]
    shown: Any = _Shown(intervals)
    return Soak("server", shown, fired, frozenset(kinds), compared=1)


def test_a_process_that_grows_is_seen() -> None:
    """From the second interval after the last kill on; earlier ones do not count."""
    steady, growing = [10, 400, 30, 50, 52, 51, 50, 53], [10, 400, 30, 50, 60, 70, 80, 90]

    assert soak.grown(_soaked(steady)) == {"gateway": (50 * MB, 53 * MB)}
    assert soak.met(_soaked(steady))
    assert not soak.met(_soaked(growing))


def test_a_bucket_that_differs_is_seen() -> None:
    """And so is a fold that never compared itself."""
    soaked = _soaked([10, 10, 10, 50, 50])
    assert not soak.met(replace(soaked, wrong=[7]))
    assert not soak.met(replace(soaked, compared=0))


def test_a_run_that_is_too_short_says_nothing_of_growth() -> None:
    """Four warm intervals are the least."""
    assert soak.grown(_soaked([10, 10, 10, 50, 90])) == {}
