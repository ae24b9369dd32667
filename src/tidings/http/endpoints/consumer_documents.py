"""JSON documents for named consumers, log entries and parked messages."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidings.core.consumers import position
from tidings.core.model.operations import data_of, event_of

if TYPE_CHECKING:
    from tidings.core.consumers.consumer import Consumer, Parked
    from tidings.core.consumers.log_view import Entry
    from tidings.core.consumers.service import Lag, Session

Document = dict[str, Any]


def entry_document(entry: Entry) -> Document:
    """Return the position, commit time, event and data of *entry*."""
    return {"id": entry.place.encode(), "at_ms": entry.at_ms, **_operation(entry.line)}


def parked_document(parked: Parked) -> Document:
    return {
        "id": parked.id,
        "at_ms": parked.at_ms,
        "error": parked.error,
        "attempts": parked.attempts,
        **_operation(parked.line),
    }


def _operation(line: str) -> Document:
    return {"event": event_of(line), "data": json.loads(data_of(line))}


def session_document(session: Session, now_ms: int) -> Document:
    """Return the data that a worker needs to continue."""
    consumer = session.consumer
    return {
        "fence": consumer.fence,
        "lease_ms": max(0, consumer.until_ms - now_ms),
        "cursor": session.cursor,
        "copying": consumer.copying,
        "acked": position.encode_spans(consumer.acked),
        "single_through": position.encoded(consumer.single),
        "retries": list(consumer.retries),
        "paused": consumer.paused,
        **consumer.filter.values(),
    }


def consumer_document(consumer: Consumer, lag: Lag, now_ms: int) -> Document:
    failure = consumer.failure
    return {
        "name": consumer.name,
        "state": "fell-off" if lag.fell_off else consumer.state(now_ms),
        "position": position.encoded(consumer.position),
        "copying": consumer.copying,
        "acked": position.encode_spans(consumer.acked),
        "lag_pages": lag.pages,
        "lag_ms": lag.ms,
        "parked": consumer.parked,
        "retries": list(consumer.retries),
        "single_through": position.encoded(consumer.single),
        "failure": failure and asdict(failure) | {"id": failure.id or None},
        "paused": consumer.paused,
        "worker": consumer.owner if consumer.held(now_ms) else None,
        **consumer.filter.values(),
    }
