"""Steps that a client could do: the suite, what browsers may read, streams that are long."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree

import httpx
from tidings.aws.config.settings import SETTINGS
from tidings.core import limits
from tidings.core.auth.origins import EXPOSED

from infra import conformance, settings, stage_on_emulator
from infra.sandbox.ground import Ground
from infra.sandbox.measuring import calls_of
from infra.sandbox.posting import WAIT_S, post
from infra.sandbox.steps import Figures, NotSo

_ORIGIN = "https://example.org"
_STREAM = {"Accept": "text/event-stream"}
_SUITE_WORKERS = 4  # cases wait for time limits; each posts under a type of its own
_FEW = "too few functions of the account may run at once"
_LAWS = "test_law["  # behind it the host and the case
_SHOWN_MAX = 10  # names of cases in a reason
_SLACK_S = 20  # a stream ends between two events
_LOG_S = 240  # until Lambda's line of a call is in CloudWatch
_LARGE_BYTES = 30_000_000  # beyond what one answer may hold, so that it ends before the log does
_EVENT_BYTES = 60_000  # of an operation, which may have 64 KB
_A_REQUEST = 16  # of them: a megabyte at most
_POSTING = 6  # requests at once: an upload is most of the time
_MB = 1_000_000


def conform(ground: Ground) -> Figures:
    """What the conformance suite says, of all cases that can hold at this place."""
    ground.tidings("feed", "set", "--stage", ground.stage, *conformance.DECLARED)
    results = ground.folder / "conformance.xml"
    left_out = stage_on_emulator.NOT_HERE if ground.place.emulated else {}
    workers = () if ground.place.emulated else ("-n", f"{_SUITE_WORKERS}", "--dist", "load")
    streams = () if ground.streams else (f"--skip-rules=7.*={_FEW}",)
    options = ("-p", "no:cacheprovider", f"--junitxml={results}", *workers, *streams)
    ground.run(conformance.command(ground.addresses, left_out, options), fine=(0, 1))
    return of_suite(ElementTree.parse(results).getroot(), len(left_out))


def of_suite(root: ElementTree.Element, left_out: int) -> Figures:
    """
    Cases by what became of them, as pytest's JUnit file has them; *left_out* were not tried.

    Raises:
        NotSo: one failed, or there was none.
    """
    cases = [each for each in root.iter("testcase") if not _of_another(each)]
    failed = [
        each.get("name", "")
        for each in cases
        if each.find("failure") is not None or each.find("error") is not None
    ]
    skipped = sum(each.find("skipped") is not None for each in cases)
    figures: dict[str, str | int | float] = {
        "passed": len(cases) - len(failed) - skipped,
        "failed": len(failed),
        "left out": left_out + skipped,
    }
    if failed or not cases:
        shown = ", ".join(failed[:_SHOWN_MAX])
        raise NotSo(f"{len(failed)} of {len(cases)} cases: {shown}", figures)
    return figures


def _of_another(case: ElementTree.Element) -> bool:
    """Whether it is of a host that the suite would start itself: one target was named."""
    name = case.get("name", "")
    return name.startswith(_LAWS) and not name.startswith(f"{_LAWS}server-")


def cors(ground: Ground) -> Figures:
    """What a browser is told of a list and of a stream, and before it posts."""
    asked = {"Origin": _ORIGIN}
    seen: dict[str, str | int | float] = {}
    answer = httpx.get(f"{ground.addresses.feed}/status", headers=asked, timeout=WAIT_S)
    problems = told(answer, "the API", seen)
    streamed = {**asked, **_STREAM}
    with httpx.stream("GET", ground.operations_stream, headers=streamed, timeout=WAIT_S) as stream:
        problems += told(stream, "the stream", seen)
    if ground.place.emulated:
        seen["before a POST"] = "not asked: the emulator answers 403 to every such question"
    else:
        problems += _before_a_post(ground, seen)
    if problems:
        raise NotSo("; ".join(problems), seen)
    return seen


def _before_a_post(ground: Ground, seen: dict[str, str | int | float]) -> list[str]:
    wanted = {
        "Origin": _ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    at = f"{ground.addresses.feed}/ops"
    before = httpx.options(at, headers=wanted, timeout=WAIT_S)
    seen["before a POST"] = f"{before.status_code}: {_header(before, 'allow-methods')}"
    if not before.is_success or "POST" not in _header(before, "allow-methods"):
        return [f"a browser may not POST: {seen['before a POST']}"]
    return []


def told(answer: httpx.Response, who: str, seen: dict[str, str | int | float]) -> list[str]:
    """What in the headers of *answer* stops a browser; *seen* is given what they say."""
    origins = answer.headers.get_list("access-control-allow-origin")
    exposed = _header(answer, "expose-headers")
    seen[f"{who}: allowed"] = ", ".join(origins) or "nobody"
    seen[f"{who}: exposed"] = exposed or "nothing"
    problems = []
    if len(origins) != 1 or origins[0] not in ("*", _ORIGIN):
        problems.append(f"{who} allows {origins}")
    missing = set(EXPOSED) - {each.strip().lower() for each in exposed.split(",")}
    if missing:
        problems.append(f"{who} does not expose {', '.join(sorted(missing))}")
    return problems


def _header(answer: httpx.Response, name: str) -> str:
    return str(answer.headers.get(f"access-control-{name}", ""))


def abandoned(ground: Ground) -> Figures:
    """How long a stream holds its function whose reader has left at once."""
    began = datetime.now(UTC)
    with httpx.stream("GET", ground.operations_stream, headers=_STREAM, timeout=WAIT_S) as stream:
        next(stream.iter_bytes())
    left = time.monotonic()

    def ended() -> list[dict[str, Any]]:
        return [each for each in calls_of(ground, "stream", began) if _seconds(each) > _SLACK_S]

    limit_s = settings.SANDBOX_STREAM_S + _LOG_S
    calls = ground.until(ended, limit_s, "Lambda's line of the call", every_s=10)
    held_s = max(_seconds(each) for each in calls)
    default = next(each.default for each in SETTINGS if each.variable == "TIDINGS_STREAM_SECONDS")
    figures: dict[str, str | int | float] = {
        "the reader left after": "the first bytes",
        "the function was held for": f"{held_s:.0f} s",
        "a stream lasts here": f"{settings.SANDBOX_STREAM_S} s",
        "a stream lasts by default, as COSTS.md counts it": f"{default} s",
        "seconds until this was in the log": round(time.monotonic() - left),
    }
    if held_s > settings.SANDBOX_STREAM_S + _SLACK_S:
        raise NotSo("it was held for longer than a stream lasts", figures)
    return figures


def _seconds(call: dict[str, Any]) -> float:
    return float(call["metrics"]["durationMs"]) / 1000


def large(ground: Ground) -> Figures:
    """A stream that would not fit one answer: it ends between two events, and goes on there."""
    kind = f"large-{uuid4().hex[:8]}"
    first = post(ground, _large(kind, 1))[0]
    requests = -(-(limits.STREAM_BYTES_MAX + _LARGE_BYTES) // (_EVENT_BYTES * _A_REQUEST))
    began = time.monotonic()
    with ThreadPoolExecutor(_POSTING) as workers:
        told = list(workers.map(lambda _: post(ground, _large(kind, _A_REQUEST)), range(requests)))
    posted_s, wanted = time.monotonic() - began, sum(map(len, told))
    heard: list[str] = []
    answers: list[tuple[int, float]] = []
    while len(heard) < wanted and len(answers) < requests:
        answers.append(_answer(ground, kind, (heard or [first])[-1], heard, wanted))
    figures: dict[str, str | int | float] = {
        "posted": f"{wanted} operations of {_EVENT_BYTES // 1000} KB in {posted_s:.0f} s",
        "answers": len(answers),
        "the first answer": f"{answers[0][0] / _MB:.1f} MB in {answers[0][1]:.0f} s",
        "MB a second": round(answers[0][0] / _MB / max(answers[0][1], 0.001), 1),
    }
    if len(heard) != wanted or len(set(heard)) != wanted or heard != sorted(heard, key=_place):
        raise NotSo(f"{len(set(heard))} of {wanted} operations came, {len(heard)} in all", figures)
    return figures


def _place(event_id: str) -> str:
    """Page and slot; the second before them orders nothing (PROTOCOL 5.1)."""
    return event_id[8:]


def _large(kind: str, count: int) -> list[dict[str, object]]:
    """What is repeated compresses: a page of the log has to hold them."""
    text = os.urandom(16).hex() * (_EVENT_BYTES // 32)
    return [
        {"event": "update", "type": kind, "id": f"{at}", "data": {"text": text}}
        for at in range(count)
    ]


def _answer(
    ground: Ground, kind: str, after: str, heard: list[str], wanted: int
) -> tuple[int, float]:
    """Bytes and seconds of one answer, up to *wanted* ids; those in it go to *heard*."""
    url = f"{ground.operations_stream}?types={kind}"
    began, size = time.monotonic(), 0
    asked = {**_STREAM, "Last-Event-ID": after}
    with httpx.stream("GET", url, headers=asked, timeout=WAIT_S) as stream:
        if stream.status_code != httpx.codes.OK:
            raise NotSo(f"GET of the stream: {stream.status_code}")
        for line in stream.iter_lines():
            size += len(line) + 1
            if line.startswith("id: "):
                heard.append(line.removeprefix("id: "))
                ground.sleep(0)  # somebody may want to stop
            elif not line and len(heard) == wanted:
                break
    return size, time.monotonic() - began
