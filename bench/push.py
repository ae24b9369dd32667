"""Measure the push follower: planning a fan-out, and sending a page to many WebSockets.

The second benchmark starts `python -m bench.push sink CERTIFICATE`, which replaces API Gateway, and
`python -m bench.push lane URL CA_FILE`, the sender of one lane, as processes of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from tests.certificates import write_authority
from tests.fakes import MemoryConnections, MemoryInbox, MemoryRegistry, MemorySubscriptions
from tests.fakes.runtime import runtime_of
from tests.unit.core.scene import one_by_one
from tidings.core.model.filters import Filter
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.core.websocket import fanout
from tidings.core.websocket.connections import Subscription

from .results import Section, rate
from .workload import operations

_FEED = "main"
_MATCHING, _PLANS = 10, 200
_MESSAGES, _BYTES = 20_000, 1_000  # of a turn, each to a connection of its own
_LANES, _ROUNDS = 4, 3
_RATE_MIN, _CPU_MS_MAX, _SHARE = 2_000, 0.15, 0.15
_ANSWER_S = 0.02
_LENGTH = b"content-length: "
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nDate: Wed, 25 Nov 2026 01:43:19 GMT\r\nContent-Type: application/json\r\n"
    b"Content-Length: 0\r\nConnection: keep-alive\r\n"
    b"x-amzn-RequestId: 5f8a2c1e-0f3b-4b6e-9a51-2f6f6e0d8c11\r\n\r\n"
)
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "A" * 20,
    "AWS_SECRET_ACCESS_KEY": "s" * 40,
    "AWS_SESSION_TOKEN": "t" * 800,  # as long as that of a function: each message is signed with it
    "AWS_DEFAULT_REGION": "eu-west-1",
}


def measure_planning() -> Section:
    """Measure that planning a fan-out depends on the matches, not on the connections."""
    batch = list(operations(100))
    page = Page(1, encode([line_from(raw, now_ms=0) for raw in batch]), "a", 0)
    wanted = [raw["parents"][1] for raw in batch[:_MATCHING]]
    few, many = (_planned_s(_subscribed(total, wanted), page) for total in (100, 100_000))
    return Section(
        "Planning a fan-out",
        "100,000 subscriptions of which 10 match cost at most 2 times 100 of which 10 match",
        [
            ("100 subscriptions, a page of 100 operations", f"{few * 1e6:,.0f} us"),
            ("100,000 subscriptions, the same page", f"{many * 1e6:,.0f} us"),
            ("ratio", f"{many / few:.2f}"),
        ],
        met=many / few <= 2,
        notes=[f"Best of {_PLANS} rounds in one process; the index is the one in memory."],
    )


def _subscribed(total: int, wanted: list[str]) -> MemorySubscriptions:
    subscriptions = MemorySubscriptions()
    for at in range(total):
        parent = wanted[at % len(wanted)] if at < _MATCHING else f"user/nobody-{at}"
        subscriptions.add(_FEED, Subscription(f"c{at}", Filter(None, frozenset({parent})), 0))
    return subscriptions


def _planned_s(subscriptions: MemorySubscriptions, page: Page) -> float:
    best = float("inf")
    find, all_of_them = partial(subscriptions.find, _FEED), partial(subscriptions.all, _FEED)
    for _ in range(_PLANS):
        started = time.perf_counter()
        found = fanout.plan([page], fanout.Index.of(find, all_of_them))
        best = min(best, time.perf_counter() - started)
        assert len(found.wanted) == _MATCHING
    return best


@dataclass(frozen=True, slots=True)
class _Turn:
    """All lanes together: seconds from the first start to the last end, and CPU seconds."""

    messages: int
    seconds: float
    cpu_s: float

    @property
    def cpu_ms(self) -> float:
        return self.cpu_s / self.messages * 1000


def measure() -> Section:
    """Measure one lane and four lanes that send a page to many WebSockets."""
    with tempfile.TemporaryDirectory() as folder:
        certificate = write_authority(Path(folder))
        one = _best([_turns(str(certificate), 1) for _ in range(_ROUNDS)])
        four = _best([_turns(str(certificate), _LANES) for _ in range(_ROUNDS)])
    apart = one[1].cpu_ms / four[1].cpu_ms - 1
    rows = [
        *_rows("one lane, TLS", one),
        *_rows(f"{_LANES} lanes in {_LANES} processes, TLS", four),
        (f"messages a CPU second, {_LANES} lanes against one", f"{apart:+.0%}"),
    ]
    met = (
        one[1].messages / one[1].seconds >= _RATE_MIN
        and one[1].cpu_ms <= _CPU_MS_MAX
        and abs(apart) <= _SHARE
    )
    return Section(
        "Pushing a page",
        f"one lane sends at least {_RATE_MIN:,} messages a second at {_CPU_MS_MAX} ms of CPU each;"
        f" {_LANES} lanes in {_LANES} processes within {_SHARE:.0%} of its messages a CPU second",
        rows,
        met,
        [
            f"{_MESSAGES:,} messages of {_BYTES:,} B a lane and turn, each to a connection of its"
            f" own; the receiver answers each after {_ANSWER_S * 1000:.0f} ms. First turn: with new"
            " connections and handshakes; second: over kept connections. The best of"
            f" {_ROUNDS} runs by CPU. Lanes and receiver share two cores, so the rate of {_LANES}"
            " is the machine's."
        ],
    )


def _rows(what: str, turns: Sequence[_Turn]) -> Iterator[tuple[str, str]]:
    for name, turn in zip(("first turn", "second turn"), turns, strict=True):
        sent = rate(turn.messages, turn.seconds)
        yield f"{what}, {name}", f"{sent}, {turn.cpu_ms:.3f} ms of CPU a message"


def _best(runs: Sequence[Sequence[_Turn]]) -> Sequence[_Turn]:
    return min(runs, key=lambda turns: turns[1].cpu_s)


def _turns(certificate: str, lanes: int) -> list[_Turn]:
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(_started("sink", certificate))
        url = f"https://localhost:{int(_line_of(sink))}/prod"
        processes = [stack.enter_context(_started("lane", url, certificate)) for _ in range(lanes)]
        return [_turn(processes) for _ in range(2)]


def _turn(lanes: Sequence[subprocess.Popen[str]]) -> _Turn:
    """Start all lanes once all are ready."""
    for lane in lanes:
        assert _line_of(lane) == "ready\n"
    for lane in lanes:
        assert lane.stdin is not None
        lane.stdin.write("\n")
        lane.stdin.flush()
    used = [json.loads(_line_of(lane)) for lane in lanes]
    assert not any(lost for *_, lost in used), "connections were lost"
    began_s, ended_s = min(each[0] for each in used), max(each[1] for each in used)
    return _Turn(len(lanes) * _MESSAGES, ended_s - began_s, sum(each[2] for each in used))


@contextlib.contextmanager
def _started(role: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command, pipe = [sys.executable, "-m", "bench.push", role, *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _send(url: str, ca_file: str) -> None:
    """Send two turns, each on a signal: the first opens the connections, the second reuses them."""
    from tidings.aws.sockets import ApiGatewaySockets
    from tidings.core.websocket.send import Delivery

    def no_sleep(ms: int) -> None:
        raise AssertionError("an exchange waits by itself")

    os.environ.update(_CREDENTIALS)
    known = MemoryConnections(MemoryInbox(), MemorySubscriptions(), MemoryRegistry())
    sockets = ApiGatewaySockets(url, 10, ca_file)
    delivery = Delivery(
        sockets=sockets,
        connections=known,
        runtime=runtime_of(lambda: 0, sleep=no_sleep),
        exchange=sockets.exchange,
    )
    turn = {f"L0SM9cOFvHcCI{number:x}=": ["x" * _BYTES] for number in range(_MESSAGES)}
    for _ in range(2):
        _print("ready")
        sys.stdin.readline()
        started_s, started_cpu_s = time.time(), time.process_time()
        lost = delivery.send_each(turn, one_by_one)
        _print(json.dumps([started_s, time.time(), time.process_time() - started_cpu_s, len(lost)]))


class _Connection(asyncio.Protocol):
    """Answer each message after the latency of API Gateway, with a timer."""

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            length = self._data[:end].partition(_LENGTH)[2].partition(b"\r\n")[0]
            size = end + 4 + int(length)
            if len(self._data) < size:
                return
            self._data = self._data[size:]
            loop = asyncio.get_running_loop()
            loop.call_later(_ANSWER_S, self._transport.write, _ANSWER)


async def _receive(certificate: str) -> None:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificate)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0, ssl=trust, backlog=4096)
    _print(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "lane":
        _send(*sys.argv[2:])
    else:
        import uvloop

        uvloop.run(_receive(sys.argv[2]))
