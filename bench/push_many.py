"""A hundred thousand subscriptions in eight lanes: how late the last of a page's messages is."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from typing import Any

from tidings.aws.dynamodb.items import subscription
from tidings.core.model.filters import Filter, parent_key
from tidings.core.websocket.connections import Subscription
from tidings.core.websocket.lanes import filed_under, lane_for
from tidings.twin.store import tables

from tests.core.scene import line

from . import engine, push, push_many_lane
from .push_many_lane import FEED, LANES
from .sections import Section, percentile

HOT = "channel/hot"
_SUBSCRIPTIONS, _WANTED = 100_000, 1_000
_PAGES_PER_S, _SECONDS = 10, 20
_P99_MS = 2_000
_BATCH = 25  # items that DynamoDB takes in a request


def measure() -> Section:
    with engine.running() as running, push.sink("") as url, contextlib.ExitStack() as stack:
        engine.end_stream(running, "log")
        _subscribe(running)
        lanes = [
            stack.enter_context(push.started("push_many_lane", running.url, url, str(number)))
            for number in range(LANES)
        ]
        for lane in lanes:
            assert push.said(lane) == "ready\n"
        appended = _append(running)
        used = [_used(lane, appended[-1][0]) for lane in lanes]
    late = [max(each["ends"][str(page)] for each in used) - at_s for page, at_s in appended]
    cpu_s = sum(each["cpu_s"] for each in used)
    p50, p99 = (percentile(late, share) * 1000 for share in (0.5, 0.99))
    sent = _WANTED * len(appended)
    return Section(
        "A page among many subscriptions",
        f"{_SUBSCRIPTIONS:,} subscriptions in {LANES} lanes, {_WANTED:,} of them want each page,"
        f" {_PAGES_PER_S} pages a second: p99 from append to the last message under {_P99_MS} ms",
        [
            ("from append to a page's last message, p50", f"{p50:,.0f} ms"),
            ("p99", f"{p99:,.0f} ms"),
            ("CPU of all lanes", f"{cpu_s / sent * 1000:.3f} ms a message"),
        ],
        p99 < _P99_MS,
        [
            f"{len(appended)} pages; {sent:,} messages, each answered after 20 ms."
            " Lanes, sink and DynamoDB Local share two cores. A stream of DynamoDB, which is some"
            f" 200 ms, is not in it: each lane looks every {push_many_lane.EVERY_S * 1000:.0f} ms."
        ],
    )


def _subscribe(running: engine.Engine) -> None:
    """Each under one parent; a hundredth under the one that is written."""
    items = []
    for number in range(_SUBSCRIPTIONS):
        name = f"L0SM9cOFvHcCI{number:x}="
        parent = HOT if number % (_SUBSCRIPTIONS // _WANTED) == 0 else f"user/{number}"
        watch = Subscription(name, Filter(parents=frozenset({parent})), 0)
        where = filed_under(FEED, lane_for(name, LANES))
        far_ms = int(time.time() * 1000) + 3_600_000
        items.append(subscription.encode(where, parent_key(parent), watch, expires_ms=far_ms))
    table = tables.name_of("connections")
    for at in range(0, len(items), _BATCH):
        batch = [{"PutRequest": {"Item": item}} for item in items[at : at + _BATCH]]
        running.client.batch_write_item(RequestItems={table: batch})  # type: ignore[dict-item]


def _append(running: engine.Engine) -> list[tuple[int, float]]:
    """The pages, and when each was in the log."""
    began_s, appended = time.time(), list[tuple[int, float]]()
    for number in range(_PAGES_PER_S * _SECONDS):
        due_s = began_s + number / _PAGES_PER_S
        time.sleep(max(0.0, due_s - time.time()))
        page = running.appender.append(FEED, [line(f"x{number}", parents=[HOT])])
        appended.append((page.number, time.time()))
    return appended


def _used(lane: subprocess.Popen[str], last: int) -> dict[str, Any]:
    """*ends*: by page, when its last message was answered; and the CPU that was used."""
    push.tell(lane, str(last))
    used: dict[str, Any] = json.loads(push.said(lane))
    return used
