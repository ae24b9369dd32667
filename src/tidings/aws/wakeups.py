"""Wake functions through the API of Lambda, and read the stream records that wake functions.

A stream record describes the write of an item. A page in the log or a message in the outbox wakes
its feed; an item of a producer's table is appended to a feed.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidings.aws.clients import translate_errors
from tidings.aws.config.settings import LIVE
from tidings.core.errors import Unavailable
from tidings.core.followers.leases import Observation
from tidings.core.model.feeds import ERASE, PUSH, lane_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_lambda import LambdaClient

    from tidings.core.ingest.table_capture import Attributes, Write


class LambdaWaker:
    """Implements `Waker`. *prefix* precedes the names of `deployment.FUNCTIONS`."""

    def __init__(self, client: LambdaClient, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    def wake(self, feed: str, follower: str, observation: Observation | None = None) -> None:
        """Invoke the function of *follower*; all lanes of push are runs of one function."""
        if follower == ERASE:
            self.run(ERASE, feed)
            return
        lane = lane_of(follower)
        function = follower if lane is None else PUSH
        self._wake(f"follow-{function}", payload(feed, observation, lane or 0))

    def replay(self, connection_id: str) -> None:
        self._wake("replay", {"replay": connection_id})

    def run(self, function: str, feed: str) -> None:
        """Request a run of *function* for *feed*; the request may be lost, like any wake-up."""
        self._wake(function, payload(feed))

    def _wake(self, function: str, payload: Mapping[str, Any]) -> None:
        try:
            with translate_errors():
                self._client.invoke(
                    FunctionName=f"{self._prefix}{function}",
                    Qualifier=LIVE,
                    InvocationType="Event",
                    Payload=json.dumps(payload).encode(),
                )
        except Unavailable:
            return  # a wake-up may be lost, because the sweep sends another within a minute


def payload(feed: str, observation: Observation | None = None, lane: int = 0) -> dict[str, Any]:
    """Return the event that wakes a function for *feed*.

    A function of an older release ignores *observation* and *lane*.
    """
    seen = {"seen": asdict(observation)} if observation else {}
    return {"ring": feed} | seen | ({"lane": lane} if lane else {})


def lane(event: Mapping[str, Any]) -> int:
    """Return the push lane that *event* wakes; a stream event wakes the first lane."""
    return int(event.get("lane", 0))


def observation(event: Mapping[str, Any]) -> Observation | None:
    """Return the observation of a lease in *event*; None if its sender did not observe one."""
    return Observation(**event["seen"]) if "seen" in event else None


def feeds_to_wake(event: Mapping[str, Any]) -> dict[str, str]:
    """Return the feeds to wake for *event*, each with the sequence number to report on failure.

    A stream event wakes every feed with a new or changed item; deletions are ignored. An event
    `{"ring": feed}` wakes one feed, without a number.
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
    """Return the answer that makes Lambda retry all records from the lowest of *numbers* on."""
    return {"batchItemFailures": [{"itemIdentifier": number} for number in numbers if number]}


_EVENTS = {"INSERT": "insert", "MODIFY": "update", "REMOVE": "delete"}


def write_of(record: Mapping[str, Any]) -> Write:
    """Return the write that *record* of the stream of a producer's table describes."""
    from tidings.core.ingest.table_capture import Write  # only `capture` needs it

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
    """Return a text or number, or the texts and numbers of a list or set; () for other types."""
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
