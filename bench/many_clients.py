"""A thousand event streams and a thousand WebSockets at once: who hears what, and how late."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from tidings.server.running import Server
from tidings.twin.running import Twin

from .sections import Section
from .workload import ndjson, operations

_ROOT = Path(__file__).parent.parent
_RATE = 200  # operations a second
_BATCH = 10
_FILES = 16_384  # three for each client: its own, the gateway's, the way to the stream's process


def measure(count: int = 1_000, seconds: int = 20) -> Section:
    with Twin() as twin:
        connected, found = heard(twin, count, seconds)
    return _section(count, seconds, connected, found)


def heard(host: Server, count: int, seconds: int) -> tuple[float, dict[str, Any]]:
    """How long *count* clients of each kind took to connect, and by kind what they heard."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, most), most))
    started = time.perf_counter()
    with _listeners(host, count) as listeners:
        assert listeners.stdin is not None and listeners.stdout is not None
        assert listeners.stdout.readline() == "connected\n"
        connected = time.perf_counter() - started
        _post_one(host.url)
        assert listeners.stdout.readline() == "listening\n"
        posted = _post(host.url, seconds)
        listeners.stdin.write(json.dumps(posted) + "\n")
        listeners.stdin.flush()
        return connected, json.loads(listeners.stdout.readline())


def _listeners(host: Server, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bench.listening", host.url, host.ws_url, str(count)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _post_one(url: str) -> None:
    """What all hear as soon as they have been taken up."""
    raw = next(iter(operations(1)))
    httpx.post(url, json=raw, timeout=60).raise_for_status()


def _post(url: str, seconds: int) -> list[tuple[float, int]]:
    """When each request was sent, and how many operations there were with it."""
    raws = list(operations(_RATE * seconds))
    posted: list[tuple[float, int]] = []
    headers = {"content-type": "application/x-ndjson"}
    with httpx.Client(base_url=url, timeout=60) as client:
        started = time.perf_counter()
        for at in range(0, len(raws), _BATCH):
            body = ndjson(raws[at : at + _BATCH])
            time.sleep(max(0.0, started + at / _RATE - time.perf_counter()))
            posted.append((time.perf_counter(), at + _BATCH))
            client.post("/", content=body, headers=headers).raise_for_status()
    return posted


def _section(count: int, seconds: int, connected: float, found: dict[str, Any]) -> Section:
    names = {"sse": "SSE", "ws": "WebSocket"}
    told = _RATE * seconds
    rows = [
        (
            f"{names[kind]}, POST to receipt",
            f"p50 {late(each, 0.5):,} ms, p99 {late(each, 0.99):,} ms",
        )
        for kind, each in found.items()
    ]
    rows += [
        (
            f"{names[kind]} clients that heard all {told:,} operations, in the one order",
            f"{each['complete']:,} of {count:,}",
        )
        for kind, each in found.items()
    ]
    return Section(
        f"{count:,} event streams and {count:,} WebSockets, {_RATE} operations a second",
        "nobody loses, repeats or reorders anything",
        rows,
        met=all(each["complete"] == count for each in found.values()),
        notes=[
            f"Requests of {_BATCH} for {seconds} s: {2 * count * _RATE:,} events a second to "
            f"deliver. The clients took {connected:.0f} s to connect; they, the gateway, all "
            "functions and the engine share the machine."
        ],
    )


def late(found: dict[str, Any], share: float) -> int:
    """Milliseconds within which *share* of all events came."""
    total = sum(events for _, events in found["late_ms"])
    seen = 0
    for late_ms, events in found["late_ms"]:
        seen += events
        if seen >= share * total:
            return int(late_ms)
    return 0
