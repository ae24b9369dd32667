"""Chained feeds: how fast one is copied, how far the end of a chain is behind, who takes over."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
from tidings.twin.running import Twin
from websockets.sync.client import connect

from .sections import Section, percentile, rate
from .workload import ndjson, operations

_OPERATIONS = 100_000
_BATCH = 500
_RATE, _REQUEST, _SECONDS = 200, 10, 30  # operations a second, in requests of so many, for so long
_KILLS = 20
_PATIENCE_S = 300.0
_LOOK_S = 0.02
_GAP_MAX_S, _GAP_WISH_S = 30.0, 5.0


def measure_copy() -> Section:
    """A log that is there, as a newly chained feed gets it."""
    with Twin() as master:
        posted = _post(master.url, _OPERATIONS)
        head = _relay(master)["head"]
        with Twin("--chain-from", master.url) as chained:
            _until(lambda: _relay(chained)["page"] > 0)
            first, started = _relay(chained)["operations"], time.perf_counter()
            _until(lambda: _relay(chained)["page"] == head)
            copied = (_OPERATIONS - first) / (time.perf_counter() - started)
    return Section(
        f"Copying a log of {_OPERATIONS:,} operations to a chained feed",
        "at least half of the rate at which it was posted",
        [
            (f"posted, {_BATCH} a request", rate(posted, 1)),
            ("copied", rate(copied, 1)),
            ("ratio", f"{copied / posted:.2f}"),
        ],
        met=copied / posted >= 0.5,
        notes=[
            "One client posts, one request at a time; one relay copies, while the state of the "
            "copy is made on the same two cores."
        ],
    )


def measure_lag() -> Section:
    """From the POST at the master to a listener of each feed of a chain."""
    with ExitStack() as stack:
        twins = list(itertools.islice(_chain(stack), 3))
        count = _RATE * _SECONDS
        sent: dict[str, float] = {}
        heard: list[dict[str, float]] = [{} for _ in twins]
        listeners = [_listening(twin, count, seen) for twin, seen in zip(twins, heard, strict=True)]
        _steadily(twins[0].url, sent)
        for listener in listeners:
            listener.join(_PATIENCE_S)
    lags = [[seen[name] - sent[name] for name in seen] for seen in heard]
    rows = [
        (f"at {where}", f"p50 {_ms(lag, 0.5)}, p99 {_ms(lag, 0.99)}")
        for where, lag in zip(("the master", "the first copy", "its copy"), lags, strict=True)
    ]
    return Section(
        f"The end of a chain of three at {_RATE} operations a second",
        "recorded",
        [*rows, ("received", ", ".join(f"{len(lag):,} of {count:,}" for lag in lags))],
        met=None,
        notes=[
            f"From POST ({_REQUEST} operations a request) to WebSocket message; three twins and "
            "their engines on two cores."
        ],
    )


def measure_leaders() -> Section:
    """Of two that follow one master, the leader is killed again and again."""
    gaps = []
    with Twin() as master:
        seats = f"dynamodb://seats?endpoint={master.dynamodb_url}"
        with _member(master, seats) as one, _member(master, seats) as other:
            for kill in range(_KILLS):
                leader, follower = _leader_first(one, other)
                leader.kill()
                killed = time.perf_counter()
                _post_one(master.url, f"kill-{kill}")
                _until(lambda twin=follower: _leads(twin, master))  # type: ignore[misc]
                gaps.append(time.perf_counter() - killed)
                leader.start()
                _until(lambda: {_relay(twin)["role"] for twin in (one, other)} == _ROLES)
    return Section(
        f"Without a leader, over {_KILLS} kills",
        f"at most {_GAP_WISH_S:.0f} s, never more than {_GAP_MAX_S:.0f} s",
        [
            ("median", f"{percentile(gaps, 0.5):.1f} s"),
            ("worst", f"{max(gaps):.1f} s"),
        ],
        met=percentile(gaps, 0.5) <= _GAP_WISH_S and max(gaps) <= _GAP_MAX_S,
        notes=[
            "From SIGKILL of the leader's twin until the follower has what was posted since, and "
            "says that it leads."
        ],
    )


_ROLES = {"leader", "follower"}


@contextmanager
def _member(master: Twin, seats: str) -> Iterator[Twin]:
    source = [f"--source={each}" for each in ("role=elected", "cluster=bench")]
    with Twin("--chain-from", master.url, *source, "--coordinator", seats) as twin:
        _until(lambda: _relay(twin)["upstream"] != "")
        yield twin


def _leader_first(one: Twin, other: Twin) -> tuple[Twin, Twin]:
    return (one, other) if _relay(one)["role"] == "leader" else (other, one)


def _leads(twin: Twin, master: Twin) -> bool:
    found = _relay(twin)
    return bool(found["role"] == "leader" and found["page"] == _relay(master)["head"])


def _chain(stack: ExitStack) -> Iterator[Twin]:
    """The master, a copy of it, a copy of that, and so on."""
    twin = stack.enter_context(Twin())
    while True:
        yield twin
        twin = stack.enter_context(Twin("--chain-from", twin.url))


def _listening(twin: Twin, count: int, seen: dict[str, float]) -> threading.Thread:
    ready = threading.Event()

    def listen() -> None:
        with connect(twin.ws_url) as socket:
            socket.send(json.dumps({"action": "subscribe"}))
            while len(seen) < count:
                message = json.loads(socket.recv(timeout=60))
                if message.get("reply") == "subscribed":
                    ready.set()
                for event in message.get("events", ()):
                    seen.setdefault(event["data"]["id"], time.perf_counter())

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert ready.wait(60)
    return thread


def _steadily(url: str, sent: dict[str, float]) -> None:
    numbers = itertools.count()
    with httpx.Client(base_url=url, timeout=30) as client:
        started = time.perf_counter()
        for at in range(_RATE * _SECONDS // _REQUEST):
            time.sleep(max(0.0, started + at * _REQUEST / _RATE - time.perf_counter()))
            names = [f"bench-{number}" for number in itertools.islice(numbers, _REQUEST)]
            body = [{"event": "update", "type": "video", "id": name} for name in names]
            sent |= dict.fromkeys(names, time.perf_counter())
            client.post("/", json=body).raise_for_status()


def _post(url: str, count: int) -> float:
    """Operations a second."""
    headers = {"content-type": "application/x-ndjson"}
    raws = list(operations(count))
    bodies = [ndjson(raws[at : at + _BATCH]) for at in range(0, count, _BATCH)]
    with httpx.Client(base_url=url, timeout=30) as client:
        started = time.perf_counter()
        for body in bodies:
            client.post("/", content=body, headers=headers).raise_for_status()
        return count / (time.perf_counter() - started)


def _post_one(url: str, name: str) -> None:
    body = {"event": "update", "type": "video", "id": name}
    httpx.post(url, json=body, timeout=30).raise_for_status()


def _relay(twin: Twin) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{twin.url}feeds/main/relay", timeout=30).json()
    return found


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"not within {_PATIENCE_S:.0f} s"
        time.sleep(_LOOK_S)


def _ms(values: list[float], share: float) -> str:
    return f"{percentile(values, share) * 1000:.0f} ms" if values else "nothing"
