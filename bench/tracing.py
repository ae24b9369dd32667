"""What a trace costs: write units of its page, and processor time where nothing is traced."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from tidings.aws.runtime.clock import now_ms
from tidings.core import tracing
from tidings.core.archive.writer import Archiver
from tidings.core.followers.told import Told
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page
from tidings.core.tracing import ASKED, Tracer

from bench import engine
from bench.sections import Section
from bench.units import counting
from bench.workload import operations
from tests.fakes import MemoryArchive

_FEED = "main"
_SIZES = range(1, 61)  # operations of a page: from one unit to two packed ones
_TRACE = tracing.made("4bf92f3577b34da6a3ce929d0e0e4736")
_ROUNDS = 20_000
_PAGES = 100  # of a turn
_OF_A_GATEWAY = "Root=1-5759e988-bd862e3fe1be46a994272793"  # API Gateway adds it to each request


def measure() -> Section:
    plain, traced, more = _units()
    unasked, asked = _of_requests()
    told_us, told_traced_us = _of_turns()
    return Section(
        "What a trace costs",
        "no plain page takes a unit more; a request that is not traced takes 5 us more at most",
        [
            (f"write units of pages of 1 to {_SIZES[-1]} operations", f"{plain:.0f}"),
            ("the same pages, traced", f"{traced:.0f}"),
            ("plain pages that take a unit more", f"{more}"),
            ("a request that nobody wants traced", f"{unasked:.2f} us"),
            ("one that is traced, without its line", f"{asked:.2f} us"),
            (f"a turn of {_PAGES} pages of which none is traced", f"{told_us:.1f} us"),
            ("the same, all of them traced, without their lines", f"{told_traced_us:.1f} us"),
        ],
        met=more == 0 and unasked <= 5,
        notes=["ConsumedCapacity of DynamoDB Local for the item of the page."],
    )


def _units() -> tuple[float, float, int]:
    """Of all pages without and with a trace, and how many plain ones take more."""
    lines = [line_from(raw, now_ms=now_ms()) for raw in operations(_SIZES[-1])]
    without = traced = more = 0
    with engine.running() as running:
        units = counting(running.client, ("PutItem",))

        def of(size: int, trace: str) -> tuple[int, bool]:
            units.clear()
            page = running.appender.append(_FEED, lines[:size], trace=trace)
            return int(sum(units.values())), isinstance(page.body, str)

        for size in _SIZES:
            (plain_units, is_plain), (traced_units, _) = of(size, ""), of(size, _TRACE)
            without, traced = without + plain_units, traced + traced_units
            more += is_plain and traced_units > plain_units
    return without, traced, more


def _of_requests() -> tuple[float, float]:
    """Microseconds of one that nobody wants traced, and of one that is."""
    headers = {"content-type": "application/json", "x-amzn-trace-id": _OF_A_GATEWAY}
    with_trace = {**headers, "traceparent": _TRACE}
    seconds = count(1_000_000)  # of a clock that is a second later each time, so that all may be
    tracer = Tracer(ASKED, lambda: 1000 * next(seconds), lambda: "a" * 32, tracing.nobody)
    return (
        _us(lambda: tracer.choose(tracing.asked(headers))),
        _us(lambda: tracer.choose(tracing.asked(with_trace))),
    )


def _of_turns() -> tuple[float, float]:
    """Microseconds that a turn takes longer because its pages are looked at."""
    pages = [Page(number, "{}", "", now_ms()) for number in range(1, _PAGES + 1)]
    traced = [replace(page, trace=_TRACE) for page in pages]
    told = Told(Archiver(MemoryArchive(), lambda *_: None), now_ms, tracing.nobody, late_ms=10**9)
    return (
        _us(lambda: told.say(_FEED, pages), _ROUNDS // _PAGES),
        _us(lambda: told.say(_FEED, traced), _ROUNDS // _PAGES),
    )


def _us(task: Callable[[], object], rounds: int = _ROUNDS) -> float:
    """The best of some tries."""
    return min(timeit.repeat(task, number=rounds, repeat=5)) / rounds * 1e6
