"""A server on this machine: what it takes, what it gives, beside a twin in the same run."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import click
import httpx
import uvloop
import websockets
from tidings.core.model.cursors import START
from tidings.server.running import Server
from tidings.twin.running import Twin

from . import load, many_clients, sse_reader
from .loading.plan import Place, Plan
from .sections import Section, percentile, rate
from .workload import ndjson, operations

_TARGETS = {1: 2_000, 16: 8_000, 64: 11_000}  # single posts a second
_SECONDS = 5.0
_BATCH = 500
_REPLAYS = {500: 300_000, 100: 300_000, 1: 100_000}  # operations a second, by request
_MANY = 1_000
_LOADS = (500, 1_000, 2_000)
_LISTENERS, _RATE, _FOR_S = 100, 200, 10.0
_HEAD = (
    "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: {kind}\r\ncontent-length: {size}\r\n\r\n"
)


class _Client(asyncio.Protocol):
    """One connection that posts one body after another, and waits for each answer."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[bytes] | None = None
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)  # uvloop's is no subclass

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
    """Acknowledged posts a second, one operation each."""
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
    """Operations a second that one client posts in requests of *size*."""
    client, raws = await _client(url), list(operations(count))
    kind = "application/x-ndjson"
    texts = [_request(url, ndjson(raws[at : at + size]), kind) for at in range(0, count, size)]
    started = time.perf_counter()
    for text in texts:
        await client.post(text)
    return count / (time.perf_counter() - started)


class _Late:
    """Seconds from POST to the last byte of an event, by transport."""

    def __init__(self, host: Server, count: int) -> None:
        self._host, self._count = host, count
        self._sent: dict[str, float] = {}
        self.by_stream: list[float] = []
        self.by_socket: list[float] = []

    async def measure(self, listeners: int) -> None:
        """Half of *listeners* on event streams, half on WebSockets."""
        starts = [self._stream() if at % 2 else self._socket() for at in range(listeners)]
        tasks = [asyncio.ensure_future(await start) for start in starts]
        client, started = await _client(self._host.url), time.perf_counter()
        for at in range(self._count):
            await asyncio.sleep(max(0.0, started + at / _RATE - time.perf_counter()))
            body = {"event": "update", "type": "video", "id": f"late-{at}"}
            self._sent[f"late-{at}"] = time.perf_counter()
            await client.post(_request(self._host.url, json.dumps(body).encode()))
        await asyncio.wait_for(asyncio.gather(*tasks), 60)

    async def _stream(self) -> Coroutine[None, None, None]:
        parts = urlsplit(self._host.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(f"GET / HTTP/1.1\r\nhost: {parts.netloc}\r\naccept: */*\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        return self._hear_stream(reader, writer)

    async def _hear_stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        heard = 0
        while heard < self._count:
            line = await reader.readline()
            if line.startswith(b"data: {") and b'"late-' in line:
                heard += 1
                took = time.perf_counter() - self._sent[json.loads(line[6:])["id"]]
                self.by_stream.append(took)
        writer.close()

    async def _socket(self) -> Coroutine[None, None, None]:
        connection = await websockets.connect(self._host.ws_url)
        await connection.send('{"action":"subscribe"}')
        await connection.recv()
        return self._hear_socket(connection)

    async def _hear_socket(self, connection: websockets.ClientConnection) -> None:
        heard = 0
        while heard < self._count:
            events = json.loads(await connection.recv()).get("events", ())
            now, heard = time.perf_counter(), heard + len(events)
            self.by_socket += [now - self._sent[event["data"]["id"]] for event in events]
        await connection.close()


def _memory_mb(pid: int) -> int:
    """What the process and its children hold in memory of their own, in MB."""
    pids = [pid]
    for each in pids:
        children = Path(f"/proc/{each}/task/{each}/children").read_text().split()
        pids.extend(int(child) for child in children)
    kb = 0
    for each in pids:
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        kb += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kb // 1024


def _cpu_s(pid: int) -> float:
    """What the process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _started(host: type[Server]) -> tuple[float, int]:
    """Seconds from the command until it serves, and its memory when idle, in MB."""
    made = host()
    began = time.perf_counter()
    with made:
        return time.perf_counter() - began, _memory_mb(made.pid)


def _replayed(count: int, size: int) -> tuple[float, float, float, int]:
    """
    Operations a second into an empty server, out of it over SSE, rows a second of a full copy,
    and its memory then.
    """
    living = sum(1 for each in operations(count) if each["event"] != "delete")
    with Server() as server:
        put = uvloop.run(_batches(server.url, count, size))
        heard = sse_reader.count(server.url, START.encode(), count)
        while not _is_projected(server.url):
            time.sleep(0.1)
        copied = sse_reader.count(server.url, "0", living)
        return put, count / heard.seconds, living / copied.seconds, _memory_mb(server.pid)


def _is_projected(url: str) -> bool:
    """Whether the state has what is in the log."""
    told = httpx.get(f"{url}status").json()
    (state,) = (each for each in told["followers"] if each["name"] == "state")
    return bool(state["checkpoint"] == told["head"])


def _ms(values: Sequence[float]) -> str:
    half, most = percentile(values, 0.5) * 1000, percentile(values, 0.99) * 1000
    return f"p50 {half:.1f} ms, p99 {most:.1f} ms"


class _Rows(list[tuple[str, str]]):
    """The figures, which are shown as they come, and whether each target was met."""

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


def _listen(rows: _Rows) -> None:
    with Server() as server:
        late = _Late(server, int(_RATE * _FOR_S))
        uvloop.run(late.measure(_LISTENERS))
    for name, each in (("SSE", late.by_stream), ("WebSocket", late.by_socket)):
        met = percentile(each, 0.5) <= 0.004 and percentile(each, 0.99) <= 0.025
        what = f"POST to {name}, {_RATE} a second, {_LISTENERS} consumers (p50 4 ms, p99 25 ms)"
        rows.add(what, _ms(each), met=met)
    with Server() as server:
        _, heard = many_clients.heard(server, _MANY, 20)
    for name, found in heard.items():
        p99_ms, whole = many_clients.late(found, 0.99), found["complete"]
        what = f"{_MANY:,} of each, {_RATE} a second in requests of 10: {name} (p99 1 s)"
        figure = f"{whole:,} heard all in order, p99 {p99_ms:,} ms"
        rows.add(what, figure, met=whole == _MANY and p99_ms <= 1_000)


def _bear(rows: _Rows) -> None:
    for per_s in _LOADS:
        with Server() as server:
            plan = Plan("serve", rate=per_s, duration_s=20)
            before_s = _cpu_s(server.pid)
            run = load.carried_out(plan, Place(server.url, ws_url=server.ws_url), server.pid)
            busy = (_cpu_s(server.pid) - before_s) / run.took_s
        done = plan.requests / run.took_s
        kept_up = not run.lost and run.drained_s < 1.0 and done > 0.95 * per_s
        figure = (
            f"{done:,.0f} a second were sent, {run.lost} violations, all heard"
            f" {run.drained_s:.1f} s behind the last; the server had {busy:.0%} of a core"
        )
        what = f"load of {per_s:,} requests of one a second, 8 consumers (2,000)"
        rows.add(what, figure, met=kept_up)


def measure(count: int = 1_000_000) -> Section:
    rows = _Rows()
    _begin(rows)
    _post(rows)
    _read(rows, count)
    _listen(rows)
    _bear(rows)
    return Section(
        "A server on one file",
        "in brackets behind each",
        rows,
        met=rows.met,
        notes=["Server, generator and consumers on two cores; followers running."],
    )
