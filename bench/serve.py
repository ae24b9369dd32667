"""Measure a server on this machine: start, posts, replay, latency and load."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import click
import httpx
import uvloop

from tidings.core.model.cursors import START
from tidings.server.running import Server
from tidings.twin import Twin

from . import load
from .loading import machine
from .loading.ledger import Place, Plan
from .loading.recorder import HEARD, Latencies
from .results import Section, rate
from .workload import ndjson, operations

_TARGETS = {1: 2_000, 16: 8_000, 64: 11_000}  # single posts a second
_SECONDS = 5.0
_BATCH = 500
_REPLAYS = {500: 300_000, 100: 300_000, 1: 100_000}  # operations a second, by request
_LOADS = (500, 1_000, 2_000)
_READ_BYTES, _PATIENCE_S = 1 << 20, 60.0
_HEAD = (
    "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\n\r\n"
)


class _Client(asyncio.Protocol):
    """A connection that posts one body after another, and waits for each answer."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[bytes] | None = None
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)  # uvloop: not a subclass

    def data_received(self, data: bytes) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(data)

    async def post(self, request: bytes) -> None:
        assert self.transport is not None
        self.answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        answer = await asyncio.wait_for(self.answered, 30)
        assert answer.startswith(b"HTTP/1.1 204"), answer[:200]


async def _client(url: str) -> _Client:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(_Client, str(parts.hostname), parts.port or 80)
    return client


def _request(url: str, body: bytes, kind: str = "application/json") -> bytes:
    head = _HEAD.format(path="/", host=urlsplit(url).netloc, kind=kind, size=len(body))
    return head.encode() + body


async def _singles(url: str, connections: int, seconds: float) -> float:
    """Return the acknowledged posts a second, with one operation each."""
    clients = [await _client(url) for _ in range(connections)]
    bodies = [_request(url, json.dumps(each).encode()) for each in operations(1_000)]
    until, done = time.perf_counter() + seconds, 0

    async def work(client: _Client, at: int) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await client.post(bodies[at % len(bodies)])
            at, done = at + 1, done + 1

    started = time.perf_counter()
    await asyncio.gather(*(work(client, 31 * at) for at, client in enumerate(clients)))
    return done / (time.perf_counter() - started)


async def _batches(url: str, count: int, size: int) -> float:
    """Return the operations a second that one client posts in requests of *size*."""
    client, raws = await _client(url), list(operations(count))
    kind = "application/x-ndjson"
    texts = [_request(url, ndjson(raws[at : at + size]), kind) for at in range(0, count, size)]
    started = time.perf_counter()
    for text in texts:
        await client.post(text)
    return count / (time.perf_counter() - started)


@dataclass(slots=True)
class _Heard:
    """The stream that was read: *first_s* until the first block, *seconds* until the last one."""

    blocks: int = 0
    bytes: int = 0
    first_s: float = 0.0
    seconds: float = 0.0


def _heard(url: str, cursor: str, blocks: int) -> _Heard:
    """Read the stream after *cursor* until *blocks* of it have arrived."""
    heard, kept = _Heard(), b""
    started = time.perf_counter()
    for text in _chunks(url, cursor):
        found = kept + text
        heard.blocks += found.count(b"\n\n")
        heard.bytes += len(text)
        kept = b"\n" if found.endswith(b"\n") and not found.endswith(b"\n\n") else b""
        heard.first_s = heard.first_s or time.perf_counter() - started
        if heard.blocks >= blocks:
            break
    heard.seconds = time.perf_counter() - started
    return heard


def _chunks(url: str, cursor: str) -> Iterator[bytes]:
    """Yield the chunks of the answer to a raw socket, which costs next to nothing."""
    host = urlsplit(url)
    assert host.hostname is not None
    with socket.create_connection((host.hostname, host.port or 80), _PATIENCE_S) as connection:
        connection.sendall(
            f"GET / HTTP/1.1\r\nHost: {host.netloc}\r\nAccept: text/event-stream\r\n"
            f"Last-Event-ID: {cursor}\r\n\r\n".encode()
        )
        buffered = bytearray()
        while b"\r\n\r\n" not in buffered:
            buffered += _more(connection)
        head, _, rest = bytes(buffered).partition(b"\r\n\r\n")
        assert b" 200 " in head.partition(b"\r\n")[0], head
        yield from _dechunked(connection, bytearray(rest))


def _dechunked(connection: socket.socket, buffered: bytearray) -> Iterator[bytes]:
    while True:
        end = buffered.find(b"\r\n")
        if end < 0:
            buffered += _more(connection)
            continue
        size = int(buffered[:end], 16)
        while len(buffered) < end + 2 + size + 2:
            buffered += _more(connection)
        if not size:
            return
        yield bytes(buffered[end + 2 : end + 2 + size])
        del buffered[: end + 2 + size + 2]


def _more(connection: socket.socket) -> bytes:
    found = connection.recv(_READ_BYTES)
    assert found, "the stream was cut"
    return found


def _memory_mb(pid: int) -> int:
    """Return the memory of the process and its descendants, shared pages counted in part, in MB."""
    kb = 0
    for each in machine.family(pid):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kb // 1024


def _started(host: type[Server]) -> tuple[float, int]:
    """Return the seconds from the command until it serves, and its idle memory in MB."""
    made = host()
    began = time.perf_counter()
    with made:
        return time.perf_counter() - began, _memory_mb(made.pid)


def _replayed(count: int, size: int) -> tuple[float, float, float, int]:
    """
    Return operations a second into an empty server and out of it over SSE, rows a second of a full
    copy, and the memory afterwards.
    """
    living = sum(1 for each in operations(count) if each["event"] != "delete")
    with Server() as server:
        put = uvloop.run(_batches(server.url, count, size))
        heard = _heard(server.url, START.encode(), count)
        while not _is_projected(server.url):
            time.sleep(0.1)
        copied = _heard(server.url, "0", living)
        return put, count / heard.seconds, living / copied.seconds, _memory_mb(server.pid)


def _is_projected(url: str) -> bool:
    """Return True if the state contains everything in the log."""
    told = httpx.get(f"{url}status").json()
    (state,) = (each for each in told["followers"] if each["name"] == "state")
    return bool(state["checkpoint"] == told["head"])


class _Rows(list[tuple[str, str]]):
    """The figures, printed as they are added, and whether all targets were met."""

    def __init__(self) -> None:
        super().__init__()
        self.met = True

    def add(self, what: str, figure: str, *, met: bool) -> None:
        verdict = "" if met else " **missed**"
        click.echo(f"  {what}: {figure}{verdict}", err=True)
        self.append((what, figure + verdict))
        self.met = self.met and met


def _begin(rows: _Rows) -> None:
    ready_s, idle_mb = _started(Server)
    twin_s, twin_mb = _started(Twin)
    figure = f"{ready_s:.2f} s (twin {twin_s:.1f} s)"
    rows.add("from command to ready (0.7 s)", figure, met=ready_s <= 0.7)
    figure = f"{idle_mb} MB (twin {twin_mb} MB)"
    rows.add("memory when idle (70 MB)", figure, met=idle_mb <= 70)


def _post(rows: _Rows) -> None:
    with Server() as server, Twin() as twin:
        for connections, target in _TARGETS.items():
            done = uvloop.run(_singles(server.url, connections, _SECONDS))
            beside = uvloop.run(_singles(twin.url, connections, _SECONDS))
            what = f"single posts on disk, {connections} connections ({target:,})"
            rows.add(what, f"{done:,.0f} a second (twin {beside:,.0f})", met=done >= target)


def _read(rows: _Rows, count: int) -> None:
    for size, target in _REPLAYS.items():
        pages = count if size > 1 else count // 10
        put, out, copied, large_mb = _replayed(pages, size)
        if size == _BATCH:
            what = f"NDJSON of {size} a request, one client (100,000)"
            rows.add(what, rate(put, 1), met=put >= 100_000)
            what = f"full replication, a row each, of a log of {pages:,} (150,000)"
            rows.add(what, rate(copied, 1), met=copied >= 150_000)
            what = f"memory with a log of {pages:,} (150 MB)"
            rows.add(what, f"{large_mb} MB", met=large_mb <= 150)
        what = f"replay of {pages:,} over SSE, in requests of {size} ({target:,})"
        rows.add(what, rate(out, 1), met=out >= target)


def _ms(latencies: Latencies) -> str:
    return f"p50 {latencies.at(50) * 1000:.1f} ms, p99 {latencies.at(99) * 1000:.1f} ms"


def _load(rows: _Rows) -> None:
    for per_s in _LOADS:
        with Server() as server:
            plan = Plan("serve", rate=per_s, duration_s=20)
            before_s = machine.cpu_s(server.pid)
            run = load.carried_out(plan, Place(server.url, ws_url=server.ws_url), server.pid)
            busy = (machine.cpu_s(server.pid) - before_s) / run.took_s
        done = plan.requests / run.took_s
        kept_up = not run.lost and run.drained_s < 1.0 and done > 0.95 * per_s
        figure = (
            f"{done:,.0f} a second were sent, {run.lost} violations, all heard"
            f" {run.drained_s:.1f} s after the last; the server used {busy:.0%} of a core;"
            f" WebSocket {_ms(run.recorder.whole(HEARD['ws']))},"
            f" SSE {_ms(run.recorder.whole(HEARD['sse']))}"
        )
        what = f"load of {per_s:,} requests of one a second, 8 consumers (2,000)"
        rows.add(what, figure, met=kept_up)


def measure(count: int = 1_000_000) -> Section:
    rows = _Rows()
    _begin(rows)
    _post(rows)
    _read(rows, count)
    _load(rows)
    return Section(
        "A server on one file",
        "in brackets behind each",
        rows,
        met=rows.met,
        notes=["Server, generator and consumers on two cores; followers running."],
    )
