"""DynamoDB write units an operation costs, as the engine itself accounts for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tidings.aws.runtime.clock import now_ms
from tidings.core.model.operations import line_from
from tidings.twin.store import tables

from bench import engine
from bench.sections import Section
from bench.workload import operations

_FEED = "main"
_BATCHES = 50
_BATCH = 100
WRITES = ("PutItem", "UpdateItem", "BatchWriteItem")
READS = ("Query", "GetItem", "BatchGetItem")


def counting(client: Any, calls: Sequence[str] = WRITES) -> Counter[str]:
    """Units by table, from the ConsumedCapacity of each of *calls* of *client*."""
    units: Counter[str] = Counter()

    def ask(params: dict[str, Any], **_: object) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def note(parsed: dict[str, Any], **_: object) -> None:
        found = parsed.get("ConsumedCapacity", [])
        for used in found if isinstance(found, list) else [found]:
            units[used["TableName"]] += used["CapacityUnits"]

    for call in calls:
        client.meta.events.register(f"provide-client-params.dynamodb.{call}", ask)
        client.meta.events.register(f"after-call.dynamodb.{call}", note)
    return units


def measure() -> Section:
    with engine.running() as running:
        units = counting(running.client)
        lines = [line_from(raw, now_ms=now_ms()) for raw in operations(_BATCHES * _BATCH)]
        for at in range(0, len(lines), _BATCH):
            running.appender.append(_FEED, lines[at : at + _BATCH])
        log_units = sum(units.values()) / len(lines)
        pages = running.reader.read(_FEED, 0).pages
        projector, _ = running.leading(_FEED)
        units.clear()
        for page in pages:
            projector.handle(_FEED, [page])
        read = sum(len(page.lines) for page in pages)
        state_units = units[tables.name_of("state")] / read
        sum_units = units[tables.name_of("control")] / read
    return Section(
        "Write units of an operation",
        f"batches of {_BATCH}: at most 0.06 for the log (counter and page), 1.0 for the state, "
        "3 % of that for its sums",
        [
            ("log, counter and page", f"{log_units:.3f}"),
            ("state, every object a different one", f"{state_units:.3f}"),
            ("the sums of the state", f"{sum_units:.3f}"),
        ],
        met=log_units <= 0.06 and state_units <= 1.0 and sum_units <= 0.03,
        notes=["ConsumedCapacity of DynamoDB Local, summed over every write."],
    )
