"""Measure servers with 10, 100 and 1,000 feeds, of which ten are active.

Each server first gets one operation into every feed, and is started again before it is measured.
All of them run at the same time, so that a slow phase of the machine affects all.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tidings.core import limits
from tidings.server.processes import free_port

from .loading import machine
from .results import Section

COUNTS = (10, 100, 1_000)
ACTIVE = 10
_POSTS, _SCRAPES, _ROUNDS = 2_000, 20, 3
_STARTS = 9  # the time of a start varies by half on a busy machine
_SWEEPS = 3  # after which feeds without work are settled
_MINUTE_S = limits.SWEEP_EVERY_MS / 1000
_RATIO_MAX = 1.1  # of 1,000 feeds to ten
_BODY = b'{"event":"update","type":"thing","id":"%d","parents":["a/b"],"data":{"n":%d}}'
# The figures with their units and factors, in the order of the rows. The first ones have a target.
_FIGURES = {
    "start, until the first answer": ("s", 1.0),
    "CPU of the start": ("s", 1.0),
    "memory": ("MB", 1.0),
    "CPU at rest, a minute with a sweep": ("ms", 1e3),
    "CPU of a post": ("us", 1e6),
}
_RECORDED = {
    "CPU of a scrape of /metrics": ("ms", 1e3),
    "size of /metrics": ("KB", 1e-3),
    "CPU of /status": ("ms", 1e3),
    "size of /status": ("KB", 1e-3),
}


@dataclass(slots=True)
class _Server:
    feeds: int
    data: Path
    pid: int = 0
    port: int = 0
    figures: dict[str, list[float]] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server; add the time and the CPU until its first answer."""
        self.port = free_port()
        names = ",".join(map(_name_of, range(self.feeds)))
        command = [sys.executable, "-m", "tidings.server", "--data", str(self.data)]
        command += ["--feeds", names, "--port", str(self.port)]
        began_s = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                self.pid = process.pid
                assert process.stdout is not None
                assert "ready" in process.stdout.readline()
                self.get(f"/feeds/{_name_of(0)}/status")
                self.add("start, until the first answer", time.monotonic() - began_s)
                self.add("CPU of the start", self.cpu_s)
                yield
            finally:
                process.terminate()

    @property
    def cpu_s(self) -> float:
        return machine.process_cpu_s(self.pid)

    @property
    def memory_mb(self) -> float:
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

    def add(self, what: str, figure: float) -> None:
        self.figures.setdefault(what, []).append(figure)

    def get(self, path: str) -> int:
        """Return the size of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path)
        size = len(connection.getresponse().read())
        connection.close()
        return size

    def post(self, feeds: int, count: int) -> float:
        """Post *count* operations to the first *feeds* feeds in turn; return the CPU of a post."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        kind = {"content-type": "application/json"}
        before_s = self.cpu_s
        for number in range(count):
            path = f"/feeds/{_name_of(number % feeds)}/ops"
            connection.request("POST", path, _BODY % (number, number), kind)
            answer = connection.getresponse()
            answer.read()
            assert answer.status < 300, answer.status
        connection.close()
        return (self.cpu_s - before_s) / count

    def scrape(self, path: str, cpu: str, size: str) -> None:
        before_s = self.cpu_s
        for _ in range(_SCRAPES):
            self.add(size, self.get(path))
        self.add(cpu, (self.cpu_s - before_s) / _SCRAPES)


def _name_of(number: int) -> str:
    return f"feed-{number:05d}"


def measure(counts: Sequence[int] = COUNTS) -> Section:
    load = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in counts]
        servers = [_Server(*each) for each in zip(counts, map(Path, folders), strict=True)]
        _prepare(servers)
        for server in servers:
            stack.enter_context(server.running())
        for server in servers:
            server.post(ACTIVE, ACTIVE)
            server.add("memory", server.memory_mb)
        _rest(servers)
        for _ in range(_ROUNDS):
            for server in servers:
                server.add("CPU of a post", server.post(ACTIVE, _POSTS))
        for server in servers:
            server.scrape("/metrics", "CPU of a scrape of /metrics", "size of /metrics")
            server.scrape(f"/feeds/{_name_of(0)}/status", "CPU of /status", "size of /status")
    return _section(servers, load)


def _prepare(servers: Sequence[_Server]) -> None:
    """Use every feed, let the sweeps settle them, and measure some starts."""
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server.running())
            server.post(server.feeds, server.feeds)
        time.sleep(_SWEEPS * _MINUTE_S + 5)
    for server in servers:
        server.figures.clear()
    for _ in range(_STARTS - 1):
        for server in servers:
            with server.running():
                pass


def _rest(servers: Sequence[_Server]) -> None:
    """Measure a minute, in which each server sweeps once."""
    before_s = [each.cpu_s for each in servers]
    time.sleep(_MINUTE_S)
    for server, began_s in zip(servers, before_s, strict=True):
        server.add("CPU at rest, a minute with a sweep", server.cpu_s - began_s)


def _section(servers: Sequence[_Server], load: float) -> Section:
    rows, met = [], True
    for what, (unit, factor) in (_FIGURES | _RECORDED).items():
        found = [median(each.figures[what]) for each in servers]
        ratio = found[-1] / found[0]
        missed = what in _FIGURES and ratio > _RATIO_MAX
        met = met and not missed
        figures = ", ".join(f"{each * factor:,.4g}" for each in found)
        rows.append((what, f"{figures} {unit}, {ratio:.2f} times{' **missed**' if missed else ''}"))
    names = ", ".join(f"{each.feeds:,}" for each in servers)
    target = f"{servers[-1].feeds:,} feeds at most {_RATIO_MAX:g} times {servers[0].feeds}"
    notes = [
        f"Servers with {names} feeds, of which {ACTIVE} are active; median of some rounds. The"
        " target is for the start, CPU and memory; the answers have at most"
        f" {limits.FEEDS_NAMED} feeds. Load average before: {load:.1f}."
    ]
    return Section("Idle feeds of a server", target, rows, met=met, notes=notes)
