"""What a bill is made of: units, requests, CPU time, log lines and bytes of each path, measured."""

from __future__ import annotations

import json
import tempfile
import time
from binascii import a2b_base64
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from tidings.core import limits
from tidings.core.log.reader import Reader
from tidings.core.model.events import GZIP

from bench import calls, costs_page, engine, messages, replay, standing, units
from bench.bill import INDEX, STREAM
from bench.calls import Functions, Used
from bench.sections import Section
from bench.workload import operations
from infra import names, settings, synth, whole

Body = list[dict[str, Any]]  # operations of one request

_ROUNDS = 8
_APART_S = max(limits.PROFILE_AGE_MS, limits.DOCUMENT_AGE_MS) / 1000 + 0.1
_WATCHERS = 25
_RING = {"ring": "main"}
_OBJECTS = 100_000  # more than are posted
_REPLAYED = 100_000  # operations; what is kept is of a million


def measure() -> Section:
    """Measure, keep the figures, and write docs/operations/COSTS.md of them."""
    with calls.running() as functions:
        used = {name: _mean(found) for name, found in _paths(functions)}
        sizes = _sizes(functions)
    found = {"used": used, "bytes": sizes, "replayed": _replayed()}
    found |= {"standing": _standing()}
    costs_page.MEASURED.write_text(
        json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )
    costs_page.write(found)
    rows = [(name, _told(each)) for name, each in used.items()]
    return Section(
        "What a bill is made of",
        "recorded",
        rows,
        notes=[
            f"Means of {_ROUNDS} calls of the deployed handlers in one process, on DynamoDB Local. "
            "COSTS.md is computed from these figures, which are kept in bench/costs.json."
        ],
    )


def _paths(functions: Functions) -> Iterator[tuple[str, list[Used]]]:
    yield from _quiet(functions)
    yield from _clients(functions)
    yield STREAM, _repeated(functions.stream)
    yield from _idle(functions)


def _quiet(functions: Functions) -> Iterator[tuple[str, list[Used]]]:
    """Producers, and followers with nobody connected."""
    for count in (1, 100):
        bodies = _bodies(count)
        yield f"post of {count}", _posting(functions, bodies)
        functions.call("follow-state", _RING)
        functions.call("follow-push", _RING)
        functions.call("follow-archive", _RING)
        for follower in ("follow-state", "follow-push", "follow-archive"):
            yield f"{follower}, a page of {count}", _following(functions, follower, bodies)


def _posting(functions: Functions, bodies: Iterator[Body]) -> list[Used]:
    return _repeated(lambda: functions.call("ingest", calls.posted(_said(next(bodies)))))


def _following(functions: Functions, follower: str, bodies: Iterator[Body]) -> list[Used]:
    """Runs that each find one page, in a process that has had some before."""

    def run() -> Used:
        functions.append(next(bodies))
        return functions.call(follower, _RING)

    return _repeated(run)


def _clients(functions: Functions) -> Iterator[tuple[str, list[Used]]]:
    names = [f"client-{number}" for number in range(_WATCHERS)]
    opened = [functions.call("connect", _opened(name)) for name in names]
    yield "connect", opened
    subscribe = [calls.said(name, action="subscribe") for name in names]
    yield "subscribe", [functions.call("receive", each) for each in subscribe]
    replay = [functions.call("replay", {"replay": name}) for name in names]
    yield "replay of nothing", replay
    functions.call("follow-push", _RING)
    bodies = _bodies(1)
    functions.sink.messages = functions.sink.message_bytes = 0
    pushed = _following(functions, "follow-push", bodies)
    assert functions.sink.messages >= _WATCHERS * _ROUNDS, functions.sink.messages
    yield f"push of a page of 1 to {_WATCHERS}", pushed
    closed = [functions.call("disconnect", _opened(name)) for name in names]
    yield "disconnect", closed


def _opened(name: str) -> dict[str, Any]:
    from tidings.twin.gateway import socket_events

    return socket_events.connect(calls.caller(name), now_ms=int(time.time() * 1000))


def _idle(functions: Functions) -> Iterator[tuple[str, list[Used]]]:
    """The sweep where nothing happens, and the index where something did."""
    for name in ("follow-state", "follow-push", "follow-archive", "index"):
        functions.call(name, _RING)
    yield "sweep, idle", _repeated(partial(functions.call, "sweep", {}))
    bodies = _bodies(1)
    yield INDEX, _repeated(partial(_indexed, functions, bodies))


def _indexed(functions: Functions, bodies: Iterator[Body]) -> Used:
    for _ in range(limits.SUMMARY_PAGES):
        functions.append(next(bodies))
    return functions.call("index", _RING)


def _bodies(count: int) -> Iterator[Body]:
    """Requests of *count* operations, each on another object."""
    made = operations(_OBJECTS)
    while True:
        yield [next(made) for _ in range(count)]


def _said(body: Body) -> object:
    """As producers post it."""
    return body[0] if len(body) == 1 else body


def _repeated(call: Callable[[], Used]) -> list[Used]:
    """
    Behind two that warm up, each so long after the one before that what an operator may change is
    read anew: as of a feed in which something happens now and then.
    """

    def later() -> Used:
        time.sleep(_APART_S)
        return call()

    return [later() for _ in range(_ROUNDS + 2)][2:]


def _mean(found: list[Used]) -> dict[str, float]:
    names = asdict(found[0])
    return {name: round(fmean(getattr(each, name) for each in found), 3) for name in names}


def _sizes(functions: Functions) -> dict[str, float]:
    """What DynamoDB bills storage for, and a message, by operation."""
    client = engine.client(functions.places.dynamodb_url)
    pages = client.scan(TableName="tidings-local-log")["Items"]
    single = [_weight(item) for item in pages if "S" in item["body"]]
    packed = [_weight(item) / 100 for item in pages if "B" in item["body"]]
    rows = client.scan(TableName="tidings-local-state")["Items"]
    weights = [_weight(item) for item in rows if "line" in item]
    sink = functions.sink
    return {
        "page of 1": round(fmean(single)),
        "operation in a page of 100": round(fmean(packed)),
        "row": round(fmean(weights)),
        "message of 1": round(sink.message_bytes / sink.messages),
        "message of 100 in gzip": len(messages.message(100, GZIP)),
    }


def _replayed() -> dict[str, dict[str, int]]:
    """Read units of a million operations, by how many were posted at once, and all strongly."""
    found = {}
    with engine.running() as running:
        spent = units.counting(running.client, units.READS)
        for batch in (1, 100):
            feed = f"replayed-{batch}"
            replay.fill(running, feed, _REPLAYED, batch)
            each = {}
            for how in ("reads", "strongly"):
                spent.clear()
                _read_all(running.reader, feed, strongly=how == "strongly")
                each[how] = round(spent.total() * 1e6 / _REPLAYED)
            found[str(batch)] = each
    return found


def _read_all(reader: Reader, feed: str, *, strongly: bool) -> None:
    after, more = 0, True
    while more:
        if strongly:
            reader.ends[feed] = after
        run = reader.read(feed, after)
        after, more = max([after, *(page.number for page in run.pages)]), run.more


def _weight(item: Any) -> int:
    """Names and values of an item, as DynamoDB counts them, and 100 bytes that it adds."""
    return 100 + sum(len(name) + _value(value) for name, value in item.items())


def _value(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "B":
        return len(a2b_base64(content))  # as `tidings.aws.dynamodb.transport.raw_query` leaves it
    return len(content) if kind == "S" else 8


def _standing() -> dict[str, dict[str, Any]]:
    """What each stage has that is billed when nothing happens, by its template."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        synth.synth(Path(folder) / "cdk.out")
        for stage in settings.STAGES:
            resources = whole.of_assembly(Path(folder) / "cdk.out", stage.name)["Resources"]
            found[stage.name] = asdict(standing.of_template(resources, names.prefix(stage)))
    return found


def _told(used: dict[str, float]) -> str:
    return (
        f"{used['writes']:g} WRU, {used['reads']:g} RRU, {used['requests']:g} requests,"
        f" {used['cpu_ms']:.1f} ms of CPU, {used['logged']:.0f} B logged,"
        f" {used['metric_bytes']:.0f} B of metrics"
    )
