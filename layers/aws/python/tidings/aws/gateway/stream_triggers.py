"""Stream records as bells: which feeds moved, and which records to report when one fails."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidings.core.followers.leases import Observation

if TYPE_CHECKING:
    from collections.abc import Mapping


def payload(feed: str, observation: Observation | None = None) -> dict[str, Any]:
    """What a function is invoked with to serve *feed*; an older release passes over the rest."""
    return {"ring": feed} | ({"seen": asdict(observation)} if observation else {})


def observation(event: Mapping[str, Any]) -> Observation | None:
    """What whoever sent *event* saw of the lease, if they looked on."""
    return Observation(**event["seen"]) if "seen" in event else None


def feeds_to_wake(event: Mapping[str, Any]) -> dict[str, str]:
    """
    The feeds that *event* rings for, each with the sequence number to report if it fails.

    A stream event rings for every feed written to (deletions by TTL are no news), a direct one
    (`{"ring": feed}`) for one and without a number.
    """
    if "ring" in event:
        return {event["ring"]: ""}
    rung: dict[str, str] = {}
    for record in event.get("Records", ()):
        if record["eventName"] != "REMOVE":
            change = record["dynamodb"]
            rung.setdefault(change["Keys"]["feed"]["S"], change["SequenceNumber"])
    return rung


def failures(numbers: list[str]) -> dict[str, Any]:
    """The answer Lambda reads: it comes again with everything from the lowest number on."""
    return {"batchItemFailures": [{"itemIdentifier": number} for number in numbers if number]}
