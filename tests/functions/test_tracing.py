"""Which lines the functions write of a traced request, and by which header it is traced."""

from __future__ import annotations

from typing import Any

import pytest

from functions.follow.handler import handle as follow
from functions.ingest.handler import handle as ingest
from functions.propose.handler import handle as propose
from tests.functions.cloud import Cloud, become, event, lines_of, log_here, restart
from tidings.aws.stage import stage

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACE_HEADERS = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
XRAY = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
OF_XRAY = "5759e988bd862e3fe1be46a994272793"
KEPT = ("message", "level", "service", "trace_id", "step", "feed", "page")

Capture = pytest.CaptureFixture[str]


def told(capsys: Capture) -> list[dict[str, Any]]:
    return [each for each in lines_of(capsys) if each.get("message") in ("traced", "late")]


def steps(capsys: Capture) -> list[tuple[str, str]]:
    return [(each["step"], each["trace_id"]) for each in told(capsys)]


def test_one_id_from_the_post_to_the_followers(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """With feed and page, as JSON; a request without tracing writes no line."""
    log_here()
    ingest(event("http_post"), None)
    ingest(event("http_post", more=TRACE_HEADERS), None)
    (line,) = told(capsys)
    values = "traced", "INFO", "tidings-dev", TRACE, "ingest", "main", 2
    assert {name: line[name] for name in KEPT} == dict(zip(KEPT, values, strict=True))
    assert 0 <= line["ms"] < 10_000

    for follower in ("state", "push"):
        become(follower, monkeypatch)
        follow(event("stream_insert"), None)
        assert steps(capsys) == [(follower, TRACE)]
    assert [each.trace for each in stage().stores.log.read("main", 0)] == [
        "",
        TRACE_HEADERS["traceparent"],
    ]


def test_a_change_is_traced_too(cloud: Cloud, capsys: Capture) -> None:
    """Like `POST /ops`, also if its key makes it a retry: by the trace it was written with."""
    log_here()
    json_type = {"content-type": "application/json", "idempotency-key": "k"}
    for trace in (
        TRACE_HEADERS,
        {"traceparent": TRACE_HEADERS["traceparent"].replace(SPAN, SPAN[::-1])},
    ):
        change = event("http_post", body='{"data":1}', headers=json_type | trace)
        assert propose(change, None)["statusCode"] == 200
        assert steps(capsys) == [("ingest", TRACE)]
    assert [each.trace for each in stage().stores.log.read("main", 0)] == [
        TRACE_HEADERS["traceparent"]
    ]


@pytest.mark.parametrize(
    ("header", "variable", "found"),
    [
        ({}, XRAY, OF_XRAY),
        ({}, XRAY.replace("Sampled=1", "Sampled=0"), None),
        ({"x-amzn-trace-id": "Root=1-5759e988-bd862e3fe1be46a994272794"}, XRAY, OF_XRAY),
        ({"x-amzn-trace-id": XRAY}, XRAY.replace("Sampled=1", "Sampled=0"), OF_XRAY),
        (TRACE_HEADERS, XRAY, TRACE),  # the caller's trace wins
    ],
)
def test_an_invocation_that_xray_samples_is_traced_by_its_id(
    cloud: Cloud,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    header: dict[str, str],
    variable: str,
    found: str | None,
) -> None:
    """So that X-Ray and the logs know it by one id."""
    log_here()
    monkeypatch.setenv("_X_AMZN_TRACE_ID", variable)
    ingest(event("http_post", more=header), None)
    assert [each for _, each in steps(capsys)] == ([found] if found else [])


def test_a_stage_may_trace_nobody_or_everybody(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """By TIDINGS_TRACES; an id is made where its caller has none."""
    log_here()
    monkeypatch.setenv("TIDINGS_TRACES", "off")
    restart()
    ingest(event("http_post", more=TRACE_HEADERS), None)
    assert steps(capsys) == []

    monkeypatch.setenv("TIDINGS_TRACES", "all")
    restart()
    ingest(event("http_post"), None)
    ((step, made),) = steps(capsys)
    assert step == "ingest"
    assert stage().stores.log.read("main", 1)[0].trace[3:35] == made


def test_a_late_page_is_told_though_nobody_traced_it(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Once for the pages of a turn, by the oldest one; not by default if it is young."""
    log_here()
    for _ in range(3):
        ingest(event("http_post"), None)
    become("state", monkeypatch)
    monkeypatch.setattr("tidings.aws.effects.now_ms", lambda: 4_000_000_000_000)
    restart()
    follow({"ring": "main"}, None)

    (line,) = told(capsys)
    assert (line["message"], line["level"]) == ("late", "WARNING")
    assert (line["step"], line["feed"], line["page"], line["pages"]) == ("state", "main", 1, 3)
    assert "trace_id" not in line
