"""Measure a server on this machine, and with `--checkout PATH` also that of another checkout.

CPU is counted in units: that of one request to an app that does nothing on the same HTTP server
(`bench.noop`), measured before each row's workload. `wrk` posts, and `readers.c` reads; the
packages of Debian that this needs are in `packages.txt`.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
import httpx

from tidings.core.model.cursors import START
from tidings.server.processes import free_port

from .loading import machine
from .results import Section
from .workload import ndjson, operations

_HERE = Path(__file__).parent
_POSTS = re.compile(r"^posts (\d+) (\d+) 0$", re.MULTILINE)
_MEMORY = "/dev/shm"
_SECONDS, _ROUNDS = 2.0, 3
_SINGLES = 20_000  # different ones
_CPU_MAX = {16: 2.5}  # units of a single post, by connections
_RATES = {1: 0.2, 16: 0.4, 64: 0.45}  # of the rate of the app that does nothing
_DELIVERED_MAX = {100: 0.35, 500: 0.3}  # units of an event, by clients
_EVENTS_S = 5_000  # to all clients together: within what one core can deliver


@dataclass(frozen=True, slots=True)
class _Used:
    """The *cpu_s* of a process while it did *count* things in *seconds*; late in milliseconds."""

    cpu_s: float
    count: int
    seconds: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def each_s(self) -> float:
        return self.cpu_s / self.count

    @property
    def per_s(self) -> float:
        return self.count / self.seconds


class _Process:
    """A server, or the app that does nothing, in a process of its own."""

    def __init__(self, pid: int, port: int, tools: Path) -> None:
        self.pid, self.port, self._tools = pid, port, tools

    @property
    def memory_mb(self) -> int:
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) // 1024

    def post(self, connections: int) -> _Used:
        """Post single operations for `_SECONDS`, and wait until the followers have read them."""
        before_s = machine.process_cpu_s(self.pid)
        how = ["-t1", f"-c{connections}", f"-d{_SECONDS:.0f}", "-s", str(_HERE / "posts.lua")]
        how += [f"http://127.0.0.1:{self.port}/", "--", str(self._tools / "singles")]
        said = subprocess.run(["wrk", *how], check=True, capture_output=True, text=True).stdout
        found = _POSTS.search(said)
        assert found, said
        self.settle()
        cpu_s = machine.process_cpu_s(self.pid) - before_s
        return _Used(cpu_s, int(found[1]), int(found[2]) / 1e6)

    def settle(self) -> None:
        """Wait until the state contains everything in the log."""
        while (answer := httpx.get(f"http://127.0.0.1:{self.port}/status")).status_code == 200:
            status = answer.json()
            read = [each["checkpoint"] for each in status["followers"] if each["name"] == "state"]
            if all(checkpoint == status["head"] for checkpoint in read):
                return
            time.sleep(0.1)

    @contextlib.contextmanager
    def clients(
        self, sse: int, ws: int, events: int, per_s: int, batch: int
    ) -> Iterator[subprocess.Popen[str]]:
        """Yield clients at the end of the log; a line starts the *events*: see `readers.c`."""
        numbers = map(str, (self.port, sse, ws, "now", events, per_s, batch))
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [self._tools / "readers", *numbers], stdin=pipe, stdout=pipe, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            try:
                yield process
            finally:
                process.kill()

    def deliver(self, sse: int, ws: int, events: int, per_s: int, batch: int = 1) -> _Used:
        """Post *events* operations to clients, and return what each of their events used."""
        with self.clients(sse, ws, events, per_s, batch) as process:
            before_s = machine.process_cpu_s(self.pid)
            said, _ = process.communicate("\n")
        if process.returncode:  # `readers` has said why: not everything was received
            return _Used(math.inf, 1, 1, math.inf, math.inf)
        self.settle()
        _, _, seconds, p50_ms, p99_ms = map(float, said.split())
        cpu_s = machine.process_cpu_s(self.pid) - before_s
        return _Used(cpu_s, events * max(1, sse + ws), seconds, p50_ms, p99_ms)

    def replay(self, cursor: str, events: int) -> _Used:
        """Read *events* from *cursor* on over one event stream."""
        before_s = machine.process_cpu_s(self.pid)
        numbers = map(str, (self.port, 1, 0, cursor, events, 0, 0))
        command: list[str | Path] = [self._tools / "readers", *numbers]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        cpu_s = machine.process_cpu_s(self.pid) - before_s
        return _Used(cpu_s, events, float(said.split()[2]))


class _Bench:
    """The rows of the section: figures of the server, and of the other checkout if there is one."""

    def __init__(self, tools: Path, checkout: Path | None) -> None:
        self.rows: list[tuple[str, str]] = []
        self.met = True
        self._tools = tools
        self._sources = [_HERE.parent / "src"] + ([checkout / "src"] if checkout else [])
        self._units: list[float] = []

    @contextlib.contextmanager
    def _started(self, source: Path, *arguments: str) -> Iterator[_Process]:
        port = free_port()
        command = [sys.executable, "-m", *arguments, "--port", str(port)]
        paths = os.pathsep.join((str(source), str(_HERE.parent)))
        with subprocess.Popen(
            command,
            cwd=self._tools,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                assert "ready" in process.stdout.readline()
                yield _Process(process.pid, port, self._tools)
            finally:
                process.terminate()

    @contextlib.contextmanager
    def servers(self, folder: str | None = None) -> Iterator[list[_Process]]:
        """Yield the server, and that of the other checkout, each with a feed of its own."""
        with contextlib.ExitStack() as stack:
            found = []
            for source in self._sources:
                data = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
                found.append(
                    stack.enter_context(self._started(source, "tidings.server", "--data", data))
                )
            yield found

    def noop(self) -> contextlib.AbstractContextManager[_Process]:
        return self._started(self._sources[0], "bench.noop")

    def unit_s(self) -> float:
        """Measure the unit."""
        with self.noop() as noop:
            used = noop.post(16)
        self._units.append(used.each_s)
        return self._units[-1]

    @property
    def units(self) -> str:
        return f"{min(self._units) * 1e6:.0f} to {max(self._units) * 1e6:.0f} us"

    def add(
        self,
        what: str,
        found: Sequence[float],
        unit: str = "",
        *,
        most: float = 0,
        least: float = 0,
    ) -> None:
        """Add the row *what* with the figure of each server; the first one has the target."""
        missed = (most and found[0] > most) or (least and found[0] < least)
        target = f" (at most {most:g})" if most else f" (at least {least:g})" if least else ""
        figure = ", other checkout ".join(_text(each, unit) for each in found)
        figure += " **missed**" if missed else ""
        click.echo(f"  {what}{target}: {figure}", err=True)
        self.rows.append((what + target, figure))
        self.met = self.met and not missed


def _text(figure: float, unit: str) -> str:
    if math.isinf(figure):
        return "clients were disconnected"
    return (f"{figure:,.2f}" if figure < 10 else f"{figure:,.0f}") + unit


def _idle(bench: _Bench) -> None:
    with bench.servers() as servers:
        bench.add("memory when idle", [each.memory_mb for each in servers], " MB")
        held = []
        for server in servers:
            with server.clients(1_000, 0, 1, 1, 1):
                held.append(server.memory_mb)
    bench.add("memory with 1,000 event streams", held, " MB", most=60)


def _singles(bench: _Bench, place: str, folder: str | None) -> None:
    with bench.noop() as noop, bench.servers(folder) as servers:
        for connections, share in _RATES.items():
            cpu, rates = [], []
            for _ in range(_ROUNDS):  # in turn, so that a slow phase of the machine affects both
                nothing = noop.post(connections)
                found = [each.post(connections) for each in servers]
                cpu.append([each.each_s / nothing.each_s for each in found])
                rates.append([each.per_s / nothing.per_s for each in found])
            what = f"single posts {place}, {connections} connections"
            most = _CPU_MAX.get(connections, 0)
            bench.add(f"{what}: CPU", list(map(median, zip(*cpu, strict=True))), most=most)
            least = share if place == "on disk" else 0
            bench.add(f"{what}: rate", list(map(median, zip(*rates, strict=True))), least=least)


def _bulk(bench: _Bench, count: int) -> None:
    unit_s = bench.unit_s()
    with bench.servers() as servers:
        found = [each.deliver(0, 0, count, 1_000_000, 500) for each in servers]
        cpu = [each.each_s / unit_s for each in found]
        bench.add("NDJSON of 500 different objects: CPU of an operation", cpu, most=0.2)
        memory = [each.memory_mb for each in servers]
        bench.add(f"memory with a log of {count:,}", memory, " MB")
        for name, cursor in (("replay", START.encode()), ("full replication", "0")):
            read = [each.replay(cursor, count) for each in servers]
            cpu = [each.each_s / unit_s for each in read]
            bench.add(f"{name} of {count:,} over SSE: CPU of an event", cpu)
            bench.add(f"{name}: rate", [each.per_s for each in read], " a second")


def _delivery(bench: _Bench) -> None:
    for clients, most in _DELIVERED_MAX.items():
        per_s = _EVENTS_S // clients
        for name, sse, ws in (("SSE", clients, 0), ("WebSocket", 0, clients)):
            unit_s = bench.unit_s()
            with bench.servers(_MEMORY) as servers:
                found = [
                    each.deliver(sse, ws, int(4 * _SECONDS * per_s), per_s) for each in servers
                ]
            cpu = [each.each_s / unit_s for each in found]
            bench.add(f"{clients} {name} clients: CPU of an event to one", cpu, most=most)


def _latency(bench: _Bench) -> None:
    with bench.servers(_MEMORY) as servers:
        found = [each.deliver(1, 0, 200, 50) for each in servers]
        bench.add("from a POST to one SSE client: p50", [each.p50_ms for each in found], " ms")
        bench.add("from a POST to one SSE client: p99", [each.p99_ms for each in found], " ms")
        found = [each.deliver(1_000, 1_000, 2_000, 200, 10) for each in servers]
    what = "1,000 SSE and 1,000 WebSocket clients, 200 operations a second in requests of 10: p99"
    bench.add(what, [each.p99_ms for each in found], " ms", most=150)


def make_tools(tools: Path) -> None:
    """Compile the clients and write the posts into the folder *tools*."""
    subprocess.run(["cc", "-O2", "-o", tools / "readers", _HERE / "readers.c"], check=True)
    lines = (ndjson([each]) + b"\n" for each in operations(_SINGLES))
    (tools / "singles").write_bytes(b"".join(lines))


def measure(count: int = 1_000_000, checkout: Path | None = None) -> Section:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tidings-") as folder:
        tools = Path(folder)
        make_tools(tools)
        bench = _Bench(tools, checkout)
        _idle(bench)
        for place, at in (("in memory", _MEMORY), ("on disk", None)):
            _singles(bench, place, at)
        _bulk(bench, count)
        _delivery(bench)
        _latency(bench)
    notes = [
        f"Unit: {bench.units}. CPU of the server's process, followers included. Rates: of that of"
        " the app that does nothing. Latencies count from when an operation was due. Delivery and"
        " latencies: in memory.",
        f"{machine.described()}, shared by server and clients; load average before: {load:.1f}.",
    ]
    return Section("A server on one file", "in brackets", bench.rows, met=bench.met, notes=notes)
