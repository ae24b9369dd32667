"""Which requests are traced, and under which id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.runtime import runtime_of
from tests.unit.core.scene import NOW
from tidings.core import limits, tracing
from tidings.core.tracing import ALL, MODES, OFF, REQUESTED, Tracer, parse_trace_headers

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
XRAY = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
OF_XRAY = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"


class Clock:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.now_ms, self.calls = NOW, 0

    def __call__(self) -> int:
        self.calls += 1
        return self.now_ms


def tracer(mode: str, clock: Clock) -> Tracer:
    return Tracer(mode, runtime_of(clock, new_id=lambda: "d" * 32))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SAMPLED, SAMPLED),
        (f"00-{TRACE}-{PARENT}-ff", SAMPLED),  # flags that we do not know
        (f"cc-{TRACE}-{PARENT}-01-what-comes-later", SAMPLED),  # a later version
        (f"00-{TRACE}-{PARENT}-00", ""),
        (f"00-{TRACE}-{PARENT}-02", ""),
        (f"00-{TRACE}-{PARENT}-01-more", None),  # of this version nothing may follow
        (f"ff-{TRACE}-{PARENT}-01", None),
        (f"00-{TRACE.upper()}-{PARENT}-01", None),
        (f"00-{'0' * 32}-{PARENT}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"{SAMPLED},{SAMPLED}", None),  # a gateway's way to say that there were two
        (f"{SAMPLED}\n", None),
        ("", None),
    ],
)
def test_4_10_a_traceparent_is_read_as_w3c_says(text: str, found: str | None) -> None:
    """P4.10: what breaks its rule is as absent, and never refuses a request."""
    assert parse_trace_headers({"traceparent": text}) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (XRAY, OF_XRAY),
        (f"{XRAY};Lineage=a87bd80c:0", OF_XRAY),
        (XRAY.replace("Sampled=1", "Sampled=0"), None),
        (XRAY.replace("Sampled=1", "Sampled=?"), None),
        ("Root=1-5759e988-bd862e3fe1be46a994272793", None),  # what load balancers add to each
        ("Root=1-5759e988-xyz;Parent=53995c3f42cd8ad8;Sampled=1", None),
        ("Sampled=1;;=;Root", None),
    ],
)
def test_4_10_xray_counts_where_it_samples(text: str, found: str | None) -> None:
    """P4.10: it also counts if the traceparent is missing or malformed."""
    assert parse_trace_headers({"x-amzn-trace-id": text}) == found
    assert parse_trace_headers({"x-amzn-trace-id": text, "traceparent": "?"}) == found
    assert parse_trace_headers({"x-amzn-trace-id": text, "traceparent": SAMPLED}) == SAMPLED


@given(st.text(), st.text())
def test_whatever_is_sent_is_an_id_or_nothing(one: str, other: str) -> None:
    """No byte of it reaches a log otherwise."""
    assert parse_trace_headers({"traceparent": one, "x-amzn-trace-id": other}) in (None, "")


@given(st.binary(min_size=24, max_size=24))
def test_what_is_kept_comes_back(stored: bytes) -> None:
    """24 bytes are 55 characters, and the trace id is 32 of them."""
    text = tracing.unpack_trace(stored)
    assert tracing.pack_trace(text) == stored
    assert tracing.trace_id(text) == stored[:16].hex()


@pytest.mark.parametrize(
    ("mode", "given", "kept"),
    [
        (OFF, SAMPLED, ""),
        (OFF, None, ""),
        (REQUESTED, SAMPLED, SAMPLED),
        (REQUESTED, None, ""),
        (REQUESTED, "", ""),
        (ALL, SAMPLED, SAMPLED),
        (ALL, None, f"00-{'d' * 32}-{'d' * 16}-01"),
        (ALL, "", ""),  # its caller decided
    ],
)
def test_who_is_traced(mode: str, given: str | None, kept: str) -> None:
    """The clock is read only if the request is traced."""
    clock = Clock()
    assert tracer(mode, clock).choose(given) == kept
    assert clock.calls == (1 if kept else 0)
    assert parse_trace_headers({"traceparent": kept}) == (kept or None)


@pytest.mark.parametrize("mode", sorted({*MODES} - {OFF}))
def test_a_process_traces_some_and_then_one_a_second(mode: str) -> None:
    """This holds for any number of requests; a quiet period restores the allowance, up to its
    limit."""
    clock = Clock()
    choose = tracer(mode, clock).choose

    def taken(asking: int) -> int:
        return sum(choose(SAMPLED) != "" for _ in range(asking))

    assert taken(100) == limits.TRACES_AT_ONCE
    clock.now_ms += 999 // limits.TRACES_PER_S
    assert taken(100) == 0
    clock.now_ms += 1
    assert taken(100) == 1
    clock.now_ms += 3_600_000
    assert taken(100) == limits.TRACES_AT_ONCE
