"""A server on this machine: what it takes, what it gives, beside a twin in the same run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop
import websockets
from tidings.core.model.cursors import START
from tidings.local.running import Twin
from tidings.server.running import Server

from . import sse_reader
from .sections import Section, percentile, rate
from .workload import ndjson, operations

_CONNECTIONS = (1, 16, 64)
_TARGETS = {1: 2_000, 16: 8_000, 64: 11_000}  # single posts a second
_SECONDS = 5.0
_BATCH, _REPLAY_BATCH = 500, 100
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
                took = time.perf_counter() - self._sent[json.loads(line[6:])["data"]["id"]]
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


def _started(host: type[Server]) -> tuple[float, int]:
    """Seconds from the command until it serves, and its memory when idle, in MB."""
    made = host()
    began = time.perf_counter()
    with made:
        return time.perf_counter() - began, _memory_mb(made.pid)


def _replayed(count: int, size: int) -> tuple[float, float, int]:
    """Operations a second into an empty server, then out of it over SSE, and its memory then."""
    with Server() as server:
        put = uvloop.run(_batches(server.url, count, size))
        heard = sse_reader.count(server.url, START.encode(), count)
        return put, count / heard.seconds, _memory_mb(server.pid)


def _ms(values: Sequence[float]) -> str:
    half, most = percentile(values, 0.5) * 1000, percentile(values, 0.99) * 1000
    return f"p50 {half:.1f} ms, p99 {most:.1f} ms"


def measure(count: int = 1_000_000) -> Section:
    ready_s, idle_mb = _started(Server)
    twin_s, twin_mb = _started(Twin)
    rows = [
        ("from the command until it serves", f"{ready_s:.2f} s (twin {twin_s:.1f} s)"),
        ("memory when idle", f"{idle_mb} MB (twin {twin_mb} MB)"),
    ]
    met = True
    with Server() as server, Twin() as twin:
        for connections in _CONNECTIONS:
            done = uvloop.run(_singles(server.url, connections, _SECONDS))
            beside = uvloop.run(_singles(twin.url, connections, _SECONDS))
            met = met and done >= _TARGETS[connections]
            what = f"single posts on disk, {connections} connections"
            rows.append((what, f"{done:,.0f} a second (twin {beside:,.0f})"))
    put, out, large_mb = _replayed(count, _BATCH)
    _, out_of_small, _ = _replayed(count, _REPLAY_BATCH)
    rows += [
        (f"NDJSON of {_BATCH} a request, one client", rate(put, 1)),
        (f"replay of {count:,} over SSE, in requests of {_BATCH}", rate(out, 1)),
        (f"replay of {count:,} over SSE, in requests of {_REPLAY_BATCH}", rate(out_of_small, 1)),
        (f"memory with a log of {count:,}", f"{large_mb} MB"),
    ]
    with Server() as server:
        late = _Late(server, int(_RATE * _FOR_S))
        uvloop.run(late.measure(_LISTENERS))
    rows += [
        (f"POST to SSE, {_RATE} a second, {_LISTENERS} consumers", _ms(late.by_stream)),
        (f"POST to WebSocket, {_RATE} a second, {_LISTENERS} consumers", _ms(late.by_socket)),
    ]
    return Section(
        "A server on one file",
        "single posts acknowledged on disk: "
        + ", ".join(f"{_TARGETS[each]:,} at {each} connections" for each in _CONNECTIONS),
        rows,
        met=met,
        notes=["Server, generator and consumers on two cores; followers running."],
    )
