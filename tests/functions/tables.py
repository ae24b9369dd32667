"""The stream of an owner's table, as Lambda passes it on."""

from __future__ import annotations

from typing import Any

from tests.functions.cloud import event

VIDEOS = '{"type":"video","id":"{{id}}","parents":["user/{{owner}}"]}'
CREATED_S = 1_795_245_106


def record(name: str, kind: str = "INSERT", **images: Any) -> dict[str, Any]:
    """Of the item *name*."""
    return {
        "eventID": f"e-{name}",
        "eventName": kind,
        "dynamodb": {
            "ApproximateCreationDateTime": CREATED_S,
            "Keys": {"id": {"S": name}},
            "SequenceNumber": f"1-{name}",
            **images,
        },
    }


def told(*records: dict[str, Any]) -> dict[str, Any]:
    return event("stream_insert", Records=list(records))
