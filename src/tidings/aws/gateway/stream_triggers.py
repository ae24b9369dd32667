"""Interpret stream records as wake-ups: the feeds to wake, and the records to report on failure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidings.core.followers.leases import Observation

if TYPE_CHECKING:
    from collections.abc import Mapping


def payload(feed: str, observation: Observation | None = None, lane: int = 0) -> dict[str, Any]:
    """Return the event that wakes a function for *feed*; older releases ignore the other fields."""
    seen = {"seen": asdict(observation)} if observation else {}
    return {"ring": feed} | seen | ({"lane": lane} if lane else {})


def lane(event: Mapping[str, Any]) -> int:
    """Return the push lane that *event* wakes; a stream wakes the first one."""
    return int(event.get("lane", 0))


def observation(event: Mapping[str, Any]) -> Observation | None:
    """Return the state of the lease observed by the sender of *event*, if it observed one."""
    return Observation(**event["seen"]) if "seen" in event else None


def feeds_to_wake(event: Mapping[str, Any]) -> dict[str, str]:
    """
    Return the feeds to wake for *event*, each with the sequence number to report on failure.

    A stream event wakes every feed that was written to (deletions by TTL are ignored). A direct
    event (`{"ring": feed}`) wakes one feed and has no number.
    """
    if "ring" in event:
        return {event["ring"]: ""}
    numbers: dict[str, str] = {}
    for record in event.get("Records", ()):
        if record["eventName"] != "REMOVE":
            change = record["dynamodb"]
            numbers.setdefault(change["Keys"]["feed"]["S"], change["SequenceNumber"])
    return numbers


def failures(numbers: list[str]) -> dict[str, Any]:
    """Return the answer after which Lambda retries all records from the lowest number on."""
    return {"batchItemFailures": [{"itemIdentifier": number} for number in numbers if number]}
