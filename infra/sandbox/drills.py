"""Drills of docs/operations/RUNBOOKS.md that a stage of one's own bears."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
from tidings.aws.config.aliases import LIVE
from tidings.aws.config.stages import settings_of
from tidings.core import limits
from websockets.sync.client import connect

from infra import circles
from infra.sandbox.ground import Ground
from infra.sandbox.posting import WAIT_S, post
from infra.sandbox.steps import CouldNot, Figures, NotSo

_REVOKED_S = 30  # the promise is five, and a clock of CloudWatch's is not in it
_SWEPT_S = 180  # a sweep a minute finds a page of half a minute
_SOONEST_S = limits.WAKE_LATE_MS / 1000 - 5  # the sweep leaves younger pages to the stream
_MAPPING_S = 300  # to turn a mapping off or on
_SETTLED_S = 120  # for the state to have all that was posted
_OPERATIONS = 1000  # of a request
_POSTING = 8  # requests at once: faster than a follower takes them
_BACKLOG_MAX = 60  # pages; above it producers wait, so that the drill costs what its time costs
_STALL_MAX_S = 45  # a follower that a guard has ended waits for the sweep, a minute
_DRAINED_S = 300
_GUARDED_S = 16 * limits.FOLLOW_RUN_MS / 1000  # calls in a row, each of so long a run


def key_revoked(ground: Ground) -> Figures:
    """A key that leaked: revoked, it opens nothing within seconds."""
    made = json.loads(
        ground.tidings(
            *("keys", "create", "--stage", ground.stage, "--json"),
            *("--role", "read", "--role", "ingest", "--expires", "1h", "--label", "drill"),
        )
    )
    url, auth = f"{ground.addresses.feed}/ops", ("", str(made["key"]))
    posted = {"event": "insert", "type": "drill", "id": "key"}

    def answer() -> httpx.Response:
        return httpx.post(url, json=posted, auth=auth, timeout=WAIT_S)

    ground.until(lambda: answer().is_success, _REVOKED_S, "the key opens the feed", 0.5)
    ground.tidings("keys", "revoke", str(made["id"]), "--stage", ground.stage)
    revoked = time.monotonic()
    unauthorized = httpx.codes.UNAUTHORIZED
    ground.until(lambda: answer().status_code == unauthorized, _REVOKED_S, "401", 0.2)
    return {"seconds until 401": round(time.monotonic() - revoked, 1)}


def rebuilt(ground: Ground) -> Figures:
    """A row of the state that somebody deleted: found by verify, put back by rebuild."""
    name = f"drill-{uuid4().hex[:8]}"
    post(ground, [{"event": "insert", "type": "drill", "id": name}])
    table, row = _row(ground, name)
    ground.client("dynamodb").delete_item(
        TableName=table, Key={each: row[each] for each in ("bucket", "key")}
    )
    where = ("--stage", ground.stage, "--json")
    found = json.loads(ground.tidings("verify", *where, fine=(3,)).splitlines()[-1])
    ground.tidings("rebuild", *where)
    after = json.loads(ground.tidings("verify", *where).splitlines()[-1])
    return {"differences found": _total(found), "after the rebuild": _total(after)}


def _total(document: Any) -> int:
    return sum(document["differences"].values())


def _row(ground: Ground, name: str) -> tuple[str, dict[str, Any]]:
    """The table of the state, and its row of an object once it has one."""
    table = settings_of(ground.stage, ground.client("cloudformation"))["TIDINGS_STATE_TABLE"]
    pages = ground.client("dynamodb").get_paginator("scan")

    def there() -> dict[str, Any] | None:
        asked = {"TableName": table, "ConsistentRead": True, "ProjectionExpression": "#b, #k"}
        names = {"ExpressionAttributeNames": {"#b": "bucket", "#k": "key"}}
        rows = (row for page in pages.paginate(**asked, **names) for row in page["Items"])
        return next((row for row in rows if name in row["key"]["S"]), None)

    row: dict[str, Any] = ground.until(there, _SETTLED_S, f"{name} in the state")
    return table, row


def stream_off(ground: Ground) -> Figures:
    """The log's stream rings for nobody: the sweep wakes the follower, and nothing is lost."""
    name = f"drill-{uuid4().hex[:8]}"
    with connect(ground.addresses.sockets, open_timeout=WAIT_S) as socket, _deaf(ground):
        socket.send(json.dumps({"action": "subscribe", "ids": [name]}))
        reply = json.loads(socket.recv(WAIT_S))
        if reply.get("reply") != "subscribed":
            raise NotSo(f"subscribe was answered with {reply}")
        post(ground, [{"event": "insert", "type": "drill", "id": name}])
        posted = time.monotonic()
        try:
            socket.recv(_SWEPT_S)
        except TimeoutError:
            raise NotSo(f"nobody was told within {_SWEPT_S} s") from None
        seconds = time.monotonic() - posted
    if seconds < _SOONEST_S:
        raise NotSo(f"told after {seconds:.1f} s: the stream rang, or somebody else did")
    return {"seconds until the sweep had it told": round(seconds)}


@contextmanager
def _deaf(ground: Ground) -> Iterator[None]:
    """`follow-push` without the stream of the log, which it has again behind this."""
    functions = ground.client("lambda")
    called = f"{ground.named('follow-push')}:{LIVE}"
    (mapping,) = functions.list_event_source_mappings(FunctionName=called)["EventSourceMappings"]

    def turn(state: str) -> None:
        on = state == "Enabled"
        functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=on)

        def there() -> bool:
            found = functions.get_event_source_mapping(UUID=mapping["UUID"])["State"]
            return bool(found == state)

        ground.until(there, _MAPPING_S, f"the mapping is {state}")

    turn("Disabled")
    try:
        yield
    finally:
        turn("Enabled")


def backlog(ground: Ground) -> Figures:
    """
    Calls that call themselves for longer than Lambda's guard lets others.

    Raises:
        CouldNot: the backlog did not last so long, so that it shows nothing.
    """
    began, refused, progress = datetime.now(UTC), _not_allowed(ground), Progress()
    first = _look(ground, progress)
    until = time.monotonic() + ground.options.backlog_s
    with ThreadPoolExecutor(_POSTING) as workers:
        while time.monotonic() < until:
            if progress.lag < _BACKLOG_MAX:
                list(workers.map(lambda _: post(ground, _many()), range(_POSTING)))
            ground.sleep(1)
            last = _look(ground, progress)
    ground.until(lambda: _look(ground, progress) and progress.lag <= 1, _DRAINED_S, "the end", 1)
    dropped = _dropped(ground, began)
    figures: dict[str, str | int | float] = {
        "the state was behind without a break for": f"{progress.behind_s:.0f} s",
        "operations": last - first,
        "longest time without progress": f"{progress.stood_s:.0f} s",
        "calls that Lambda dropped as recursive": dropped,
        "functions that may call themselves": len(circles.CIRCLING),
    }
    if refused or dropped or progress.stood_s > _STALL_MAX_S:
        raise NotSo(f"guarded against themselves: {', '.join(refused) or 'see below'}", figures)
    if progress.behind_s < _GUARDED_S:
        told = f"behind for {progress.behind_s:.0f} s, and the guard strikes after {_GUARDED_S:.0f}"
        raise CouldNot(f"the state was {told}")
    return figures


class Progress:
    """
    Of a follower: *lag* pages to the head; *behind_s* is how long it was behind without a break,
    *stood_s* how long it stood still while it was, the longest of each.
    """

    def __init__(self) -> None:
        self.lag = 0
        self.behind_s = self.stood_s = 0.0
        self._behind: float | None = None
        self._at, self._since = -1, 0.0

    def seen(self, lag: int, checkpoint: int, now_s: float) -> None:
        """What a status says of it."""
        self.lag = lag
        if lag <= 1:
            self._behind = None
        elif self._behind is None:
            self._behind = self._since = now_s
        if checkpoint != self._at:
            self._at, self._since = checkpoint, now_s
        if self._behind is not None:
            self.behind_s = max(self.behind_s, now_s - self._behind)
            self.stood_s = max(self.stood_s, now_s - self._since)


def _look(ground: Ground, progress: Progress) -> int:
    """How many operations the feed has received; *progress* is told of the state."""
    report = httpx.get(f"{ground.addresses.feed}/status", timeout=WAIT_S).json()
    state = next(each for each in report["followers"] if each["name"] == "state")
    progress.seen(int(state["lag_pages"]), int(state["checkpoint"]), time.monotonic())
    return int(report["events_received"])


def _not_allowed(ground: Ground) -> list[str]:
    """Functions in a circle that Lambda would end in one."""
    functions = ground.client("lambda")
    modes = {
        name: functions.get_function_recursion_config(FunctionName=ground.named(name))[
            "RecursiveLoop"
        ]
        for name in sorted(circles.CIRCLING)
    }
    return [name for name, mode in modes.items() if mode != "Allow"]


def _dropped(ground: Ground, since: datetime) -> int:
    watched = ground.client("cloudwatch")
    total = 0.0
    for name in circles.CIRCLING:
        dimension = {"Name": "FunctionName", "Value": ground.named(name)}
        found = watched.get_metric_statistics(
            Namespace="AWS/Lambda",
            MetricName="RecursiveInvocationsDropped",
            Dimensions=[dimension],
            StartTime=since - timedelta(minutes=1),
            EndTime=datetime.now(UTC) + timedelta(minutes=1),
            Period=60,
            Statistics=["Sum"],
        )
        total += sum(each["Sum"] for each in found["Datapoints"])
    return int(total)


def _many() -> list[dict[str, str]]:
    """Objects of their own, so that each is a write of the state."""
    some = uuid4().hex[:8]
    return [{"event": "insert", "type": "drill", "id": f"{some}-{at}"} for at in range(_OPERATIONS)]
