"""What clients see: messages and streams, headers for browsers, streams that are long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest

from infra import settings, smoke
from tests.aws.stage import WAIT_S, Stage, until
from tidings.core import limits
from tidings.core.auth.origins import EXPOSED

Record = Callable[[str, object], None]

_ORIGIN = "https://example.org"
_STREAM = {"Accept": "text/event-stream"}
_SLACK_S = 20  # a stream ends between two events
_LOG_S = 240  # until Lambda's line of a call is in CloudWatch
_LARGE_BYTES = 30_000_000  # beyond what one answer may hold, so that it ends before the log does
_EVENT_BYTES = 60_000  # of an operation, which may have 64 KB
_A_REQUEST = 16  # operations: a megabyte at most
_POSTING = 6  # requests at once: an upload is most of the time


def test_an_operation_arrives_over_websocket_and_sse(stage: Stage) -> None:
    assert len(list(smoke.run(*stage.addresses))) == 3


def test_the_api_sends_browsers_the_headers_that_pages_need(stage: Stage) -> None:
    url = f"{stage.addresses.feed}/status"
    _check_cors(httpx.get(url, headers={"Origin": _ORIGIN}, timeout=WAIT_S))


def test_the_stream_sends_browsers_the_headers_that_pages_need(stage: Stage) -> None:
    asked = {"Origin": _ORIGIN, **_STREAM}
    with httpx.stream("GET", stage.operations_stream, headers=asked, timeout=WAIT_S) as answer:
        _check_cors(answer)


def _check_cors(answer: httpx.Response) -> None:
    """Check what browsers check: a header that comes twice is refused like a missing one."""
    (origin,) = answer.headers.get_list("access-control-allow-origin")
    assert origin in ("*", _ORIGIN)
    exposed = answer.headers.get("access-control-expose-headers", "").split(",")
    assert {each.strip().lower() for each in exposed} >= set(EXPOSED)


def test_a_browser_may_post(stage: Stage) -> None:
    stage.require_aws("the emulator answers 403 to every question before a POST")
    asked = {
        "Origin": _ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    before = httpx.options(f"{stage.addresses.feed}/ops", headers=asked, timeout=WAIT_S)
    assert before.is_success
    assert "POST" in before.headers["access-control-allow-methods"]


def test_an_abandoned_stream_holds_its_function_no_longer_than_a_stream_lasts(
    stage: Stage, record_property: Record
) -> None:
    stage.require_aws("only Lambda's own line of the call has it")
    began = datetime.now(UTC)
    with httpx.stream("GET", stage.operations_stream, headers=_STREAM, timeout=WAIT_S) as answer:
        next(answer.iter_bytes())

    def ended() -> list[float]:
        calls = (float(each["durationMs"]) / 1000 for each in stage.calls("stream", began))
        return [each for each in calls if each > _SLACK_S]

    limit_s = settings.SANDBOX_STREAM_S + _LOG_S
    held_s = max(until(ended, limit_s, "Lambda's line of the call", every_s=10))
    record_property("seconds that the function was held", round(held_s))
    assert held_s <= settings.SANDBOX_STREAM_S + _SLACK_S


@pytest.mark.timeout(1800)
def test_a_stream_above_180_mb_ends_between_two_events_and_is_resumed(
    stage: Stage, record_property: Record
) -> None:
    stage.require_aws("the emulator cuts no answer, and its tables take minutes for 200 MB")
    kind = f"large-{uuid4().hex[:8]}"
    first = stage.post(_large(kind, 1))[0]
    requests = -(-(limits.STREAM_BYTES_MAX + _LARGE_BYTES) // (_EVENT_BYTES * _A_REQUEST))
    with ThreadPoolExecutor(_POSTING) as workers:
        sent = list(workers.map(lambda _: stage.post(_large(kind, _A_REQUEST)), range(requests)))
    posted = sum(map(len, sent))
    received: list[str] = []
    answers: list[float] = []
    while len(received) < posted and len(answers) < requests:
        answers.append(_read(stage, kind, (received or [first])[-1], received, posted))
    record_property("answers", len(answers))
    record_property("MB a second of the first", round(answers[0] / 1_000_000, 1))
    assert len(answers) > 1
    assert len(received) == len(set(received)) == posted
    assert received == sorted(received, key=lambda event_id: event_id[8:])  # page and slot


def _large(kind: str, count: int) -> list[dict[str, Any]]:
    """Build operations with repeated text, which compresses: a page of the log has to hold them."""
    text = os.urandom(16).hex() * (_EVENT_BYTES // 32)
    return [
        {"event": "update", "type": kind, "id": f"{at}", "data": {"text": text}}
        for at in range(count)
    ]


def _read(stage: Stage, kind: str, after: str, received: list[str], wanted: int) -> float:
    """Append the ids of one answer to *received*, up to *wanted*; return its bytes a second."""
    url = f"{stage.operations_stream}?types={kind}"
    began, size = time.monotonic(), 0
    asked = {**_STREAM, "Last-Event-ID": after}
    with httpx.stream("GET", url, headers=asked, timeout=WAIT_S) as answer:
        assert answer.status_code == httpx.codes.OK
        for line in answer.iter_lines():
            size += len(line) + 1
            if line.startswith("id: "):
                received.append(line.removeprefix("id: "))
            elif not line and len(received) == wanted:
                break
    return size / (time.monotonic() - began)
