"""The agent under a burst of datagrams: every one of them is accounted for."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from . import receiver
from .sections import Section, rate
from .workload import operations

_RATE = 50_000
_SECONDS = 10
_TICK_S = 0.005
_JUNK_EVERY = 1_000
_RSS_MB_MAX = 256
_DRAIN_S = 120.0


@dataclass(frozen=True, slots=True)
class _Found:
    sent: int
    seconds: float
    status: dict[str, Any]
    drained_s: float
    appended: int
    rss_mb: float


def measure() -> Section:
    found = _run()
    status = found.status
    received, discarded = status["events_received"], status["events_discarded"]
    errors, drops = status["events_error"], status["kernel_drops"]
    exact = received + discarded + errors == found.sent - drops and found.appended == received
    return Section(
        f"The agent under {_RATE:,} datagrams a second",
        f"{_SECONDS} s: received + discarded + error = sent - dropped by the kernel, all received"
        f" are posted, at most {_RSS_MB_MAX} MB",
        [
            ("offered", f"{found.sent:,}, {rate(found.sent, found.seconds)}"),
            ("dropped by the kernel", f"{drops:,}"),
            ("received", f"{received:,}"),
            ("discarded, the queue of 100,000 being full", f"{discarded:,}"),
            ("error", f"{errors:,}"),
            ("appended at the sink", f"{found.appended:,}"),
            ("queue empty after the burst", f"{found.drained_s:.1f} s"),
            ("peak memory, both processes", f"{found.rss_mb:.0f} MB"),
        ],
        met=exact and found.rss_mb <= _RSS_MB_MAX,
        notes=[
            f"Generator, agent and a sink that only counts share the machine; one datagram in"
            f" {_JUNK_EVERY:,} is no operation."
        ],
    )


def _run() -> _Found:
    with tempfile.TemporaryDirectory() as folder, receiver.running() as (port, counted):
        with _agent(port, Path(folder)) as (process, address):
            sent, seconds = _offer(address)
            started = time.perf_counter()
            status = _drained(address, sent)
            drained_s = time.perf_counter() - started
            rss_mb = sum(map(_peak_mb, _family(process.pid)))
        return _Found(sent, seconds, status, drained_s, counted(), rss_mb)


@contextlib.contextmanager
def _agent(port: int, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "tidings.client.cli.main", "agent", "--listen", "127.0.0.1:0"]
    command += ["--url", f"http://127.0.0.1:{port}", "--queue-dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[3].rstrip(",")
        finally:
            process.terminate()


def _offer(address: str) -> tuple[int, float]:
    """From a process of its own, so that it competes as a producer would."""
    mine, theirs = multiprocessing.Pipe()
    generator = multiprocessing.Process(target=_generate, args=[address, theirs])
    generator.start()
    sent, seconds = mine.recv()
    generator.join()
    return sent, seconds


def _generate(address: str, answer: Connection) -> None:
    host, _, port = address.rpartition(":")
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.connect((host, int(port)))
    datagrams = [json.dumps(raw).encode() for raw in operations(_JUNK_EVERY - 1)] + [b"junk"]
    started, sent = time.perf_counter(), 0
    while sent < _RATE * _SECONDS:
        due = min(int((time.perf_counter() - started) * _RATE), _RATE * _SECONDS)
        for at in range(sent, due):
            sock.send(datagrams[at % _JUNK_EVERY])
        sent = max(sent, due)
        time.sleep(_TICK_S)
    answer.send((sent, time.perf_counter() - started))


def _drained(address: str, sent: int) -> dict[str, Any]:
    """The status once nothing is queued and everything is counted, or time is up."""
    deadline = time.monotonic() + _DRAIN_S
    while True:
        status: dict[str, Any] = httpx.get(f"http://{address}/status", timeout=30).json()
        counted = sum(status[f"events_{name}"] for name in ("received", "discarded", "error"))
        settled = counted >= sent - status["kernel_drops"] and not status["queue_size"]
        if settled or time.monotonic() > deadline:
            return status
        time.sleep(0.1)


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def _peak_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024
