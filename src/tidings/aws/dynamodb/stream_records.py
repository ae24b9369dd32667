"""Convert records of the stream of a producer's table to writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.core.ingest.table_capture import Attributes, Write

if TYPE_CHECKING:
    from collections.abc import Mapping

_EVENTS = {"INSERT": "insert", "MODIFY": "update", "REMOVE": "delete"}


def write_of(record: Mapping[str, Any]) -> Write:
    change = record["dynamodb"]
    return Write(
        id=record["eventID"],
        event=_EVENTS[record["eventName"]],
        keys=_attributes(change["Keys"]),
        before=_attributes(change.get("OldImage", {})),
        after=_attributes(change.get("NewImage", {})),
        at_ms=int(change["ApproximateCreationDateTime"] * 1000),
    )


def _attributes(item: Mapping[str, Any]) -> Attributes:
    contents = {name: _content(*value.items()) for name, value in item.items()}
    return {name: value for name, value in contents.items() if value}


def _content(value: tuple[str, Any]) -> str | tuple[str, ...]:
    """Return a text or number, or all elements of a list or set; empty for any other type."""
    match value:
        case "S" | "N", content:
            return str(content)
        case "SS" | "NS", content:
            return tuple(sorted(content))  # DynamoDB returns a set in any order
        case "L", content:
            each = (_content(*inner.items()) for inner in content)
            return tuple(one for one in each if one and isinstance(one, str))
        case _:
            return ()
