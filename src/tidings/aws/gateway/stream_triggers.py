"""Stream records as wake-ups: which feeds moved, and which records to report if one fails."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidings.core.followers.leases import Observation

if TYPE_CHECKING:
    from collections.abc import Mapping


def payload(feed: str, observation: Observation | None = None, lane: int = 0) -> dict[str, Any]:
    """The event that wakes a function for *feed*; an older release ignores the rest of it."""
    seen = {"seen": asdict(observation)} if observation else {}
    return {"ring": feed} | seen | ({"lane": lane} if lane else {})


def lane(event: Mapping[str, Any]) -> int:
    """Which lane of push *event* wakes; a stream wakes the first one."""
    return int(event.get("lane", 0))


def observation(event: Mapping[str, Any]) -> Observation | None:
    """The state of the lease that the sender of *event* saw, if it watched one."""
    return Observation(**event["seen"]) if "seen" in event else None


def feeds_to_wake(event: Mapping[str, Any]) -> dict[str, str]:
    """
    The feeds that *event* is a wake-up for, each with the sequence number to report if it fails.

    A stream event wakes every feed that was written to (deletions by TTL are ignored), a direct one
    (`{"ring": feed}`) wakes one and has no number.
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
    """The answer Lambda reads: it comes again with everything from the lowest number on."""
    return {"batchItemFailures": [{"itemIdentifier": number} for number in numbers if number]}
