"""
The rules after an invocation of an event source mapping, as pure functions.

These are Lambda's documented rules for DynamoDB streams, for a mapping that splits failing batches
and reports single items:

* a batch that fails as a whole is split in two, and neither half has used up a retry;
* a reported item ends the batch there: earlier records are done, the rest is retried;
* a single record is retried until its retries are used up, then it is discarded;
* a record that has become too old is discarded before it is tried.

Records stay in order: the next record is tried only when this one is done or discarded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tidings.twin.lambdas.runtime_api import Answer


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a stream: *event* is passed to the function."""

    sequence: str
    created_ms: int
    event: dict[str, object]


@dataclass(frozen=True, slots=True)
class Batch:
    """Records to be tried together; *failures* counts the attempts that used up a retry."""

    records: tuple[Record, ...]
    failures: int = 0


class Condition(Enum):
    """The reason why records were discarded, as sent to the failure destination."""

    RETRIES = "RetryAttemptsExhausted"
    AGE = "RecordAgeExceeded"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt: *todo* are the next batches, *given_up* goes to the destination."""

    todo: tuple[Batch, ...] = ()
    given_up: Batch | None = None


def first_failure(answer: Answer, batch: Batch) -> int | None:
    """Return the index of the first record that is not done, None if all are."""
    if answer.error is not None:
        return 0
    try:
        response = json.loads(answer.payload or b"null")
    except ValueError:
        return 0
    reported = response.get("batchItemFailures") if isinstance(response, dict) else None
    if not reported:
        return None
    if not isinstance(reported, list):
        return 0
    places = {record.sequence: index for index, record in enumerate(batch.records)}
    # An identifier that is empty, missing or unknown fails the whole batch.
    return min(places.get(_identifier(item), 0) for item in reported)


def settle(batch: Batch, failed_at: int | None, *, retries_max: int) -> Outcome:
    """
    Return the next batches after *batch* was tried and all records from *failed_at* on failed.
    """
    if failed_at is None:
        return Outcome()
    if failed_at > 0:
        return Outcome((Batch(batch.records[failed_at:], batch.failures),))
    if len(batch.records) > 1:
        half = len(batch.records) // 2
        return Outcome(
            (
                Batch(batch.records[:half], batch.failures),
                Batch(batch.records[half:], batch.failures),
            )
        )
    failed = Batch(batch.records, batch.failures + 1)
    if failed.failures > retries_max:
        return Outcome(given_up=failed)
    return Outcome((failed,))


def drop_old(batch: Batch, *, now_ms: int, age_max_s: int) -> tuple[Batch | None, Batch | None]:
    """Split *batch* into the records that are too old and the others; either may be None."""
    oldest_ms = now_ms - age_max_s * 1000
    old = tuple(record for record in batch.records if record.created_ms < oldest_ms)
    young = tuple(record for record in batch.records if record.created_ms >= oldest_ms)
    return _batch(old, batch), _batch(young, batch)


def chunks(records: Sequence[Record], size: int) -> list[Batch]:
    return [Batch(tuple(records[i : i + size])) for i in range(0, len(records), size)]


def _batch(records: tuple[Record, ...], of: Batch) -> Batch | None:
    return Batch(records, of.failures) if records else None


def _identifier(item: object) -> str:
    identifier = item.get("itemIdentifier") if isinstance(item, dict) else None
    return identifier if isinstance(identifier, str) else ""
