"""What it takes to send a page to many WebSockets: one lane, and four at once."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.certificates import write_authority

from . import push_lane, push_sink
from .sections import Section, rate

_MESSAGES = 20_000  # of a turn, each to a connection of its own
_LANES = 4
_RATE_MIN, _CPU_MS_MAX, _SHARE = 2_000, 0.15, 0.15
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class _Turn:
    """Of all lanes together: seconds from the first to the last one's end, and of CPU."""

    messages: int
    seconds: float
    cpu_s: float

    @property
    def cpu_ms(self) -> float:
        return self.cpu_s / self.messages * 1000


def measure() -> Section:
    with tempfile.TemporaryDirectory() as folder:
        certificate = write_authority(Path(folder))
        plain = _best([_turns("", 1) for _ in range(_ROUNDS)])
        one = _best([_turns(str(certificate), 1) for _ in range(_ROUNDS)])
        four = _best([_turns(str(certificate), _LANES) for _ in range(_ROUNDS)])
    apart = one[1].cpu_ms / four[1].cpu_ms - 1
    rows = [
        *_rows("one lane, TLS", one),
        *_rows("one lane, unencrypted", plain),
        *_rows(f"{_LANES} lanes in {_LANES} processes, TLS", four),
        (f"messages a CPU second, {_LANES} lanes beside one", f"{apart:+.0%}"),
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
            f"{_MESSAGES:,} messages of {push_lane.BYTES:,} B a lane and turn, each to a connection"
            f" of its own, to a process that answers each after {push_sink.ANSWER_S * 1000:.0f} ms."
            " First turn: with connections and handshakes; second: over those that were kept."
            f" The best of {_ROUNDS} runs by CPU. Lanes and sink share two cores, so the rate of"
            f" {_LANES} is the machine's. A thread a message, urllib3 and botocore's signer took"
            " 0.39 ms, unencrypted ([ADR 20](../docs/adr/0020-messages-are-signed-by-hand.md)).",
        ],
    )


def _rows(what: str, turns: Sequence[_Turn]) -> Iterator[tuple[str, str]]:
    for name, turn in zip(("first turn", "second turn"), turns, strict=True):
        sent = rate(turn.messages, turn.seconds)
        yield f"{what}, {name}", f"{sent}, {turn.cpu_ms:.3f} ms of CPU a message"


def _best(runs: Sequence[Sequence[_Turn]]) -> Sequence[_Turn]:
    return min(runs, key=lambda turns: turns[1].cpu_s)


def _turns(certificate: str, lanes: int) -> list[_Turn]:
    with sink(certificate) as url, contextlib.ExitStack() as stack:
        lane = url, certificate, str(_MESSAGES)
        processes = [stack.enter_context(started("push_lane", *lane)) for _ in range(lanes)]
        return [_turn(processes) for _ in range(2)]


def _turn(lanes: Sequence[subprocess.Popen[str]]) -> _Turn:
    """All begin when all are ready."""
    for lane in lanes:
        assert said(lane) == "ready\n"
    for lane in lanes:
        tell(lane, "")
    used = [json.loads(said(lane)) for lane in lanes]
    assert not any(lost for *_, lost in used), "connections were lost"
    began_s, ended_s = min(each[0] for each in used), max(each[1] for each in used)
    return _Turn(len(lanes) * _MESSAGES, ended_s - began_s, sum(each[2] for each in used))


@contextlib.contextmanager
def sink(certificate: str) -> Iterator[str]:
    """The address of a process that messages are sent to."""
    with started("push_sink", certificate) as process:
        port = int(said(process))
        yield f"{'https' if certificate else 'http'}://localhost:{port}/prod"


@contextlib.contextmanager
def started(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A module of ours in a process of its own, until the block ends."""
    command, pipe = [sys.executable, "-m", f"bench.{module}", *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def tell(process: subprocess.Popen[str], text: str) -> None:
    """A line on its standard input."""
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def said(process: subprocess.Popen[str]) -> str:
    """The next line of its standard output."""
    assert process.stdout is not None
    return process.stdout.readline()
