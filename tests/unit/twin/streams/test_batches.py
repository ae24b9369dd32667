"""What follows an invocation of an event source mapping."""

import json

import pytest

from tidings.twin.lambdas.runtime_api import Answer, failure
from tidings.twin.streams import batches
from tidings.twin.streams.batches import Batch, Outcome, Record


def records(*sequences: str, created_ms: int = 0) -> tuple[Record, ...]:
    return tuple(Record(sequence, created_ms, {}) for sequence in sequences)


BATCH = Batch(records("a", "b", "c", "d"))


@pytest.mark.parametrize(
    ("payload", "failed_at"),
    [
        (b"null", None),
        (b"", None),
        (b"{}", None),
        (b'{"batchItemFailures":[]}', None),
        (b'{"batchItemFailures":null}', None),
        (b'{"batchItemFailures":[{"itemIdentifier":"c"}]}', 2),
        (b'{"batchItemFailures":[{"itemIdentifier":"d"},{"itemIdentifier":"b"}]}', 1),
        (b'{"batchItemFailures":[{"itemIdentifier":""}]}', 0),
        (b'{"batchItemFailures":[{"itemIdentifier":null}]}', 0),
        (b'{"batchItemFailures":[{"wrong":"c"}]}', 0),
        (b'{"batchItemFailures":[{"itemIdentifier":"nobody"}]}', 0),
        (b'{"batchItemFailures":"c"}', 0),
        (b"{", 0),
    ],
)
def test_an_answer_says_from_where_on_a_batch_failed(payload: bytes, failed_at: int | None) -> None:
    """The lowest reported record counts; what cannot be understood fails the whole batch."""
    assert batches.first_failure(Answer(payload), BATCH) == failed_at


def test_a_function_error_fails_the_whole_batch() -> None:
    """Whatever its document says."""
    answer = Answer(json.dumps({"batchItemFailures": []}).encode(), failure("X", "y").error)

    assert batches.first_failure(answer, BATCH) == 0


def test_success_leaves_nothing() -> None:
    """The next batch is next."""
    assert batches.settle(BATCH, None, retries_max=1) == Outcome()


def test_a_partial_failure_goes_on_at_the_failed_record() -> None:
    """What came before is not tried again, and no retry is used up."""
    outcome = batches.settle(BATCH, 2, retries_max=1)

    assert outcome == Outcome((Batch(records("c", "d")),))


def test_a_whole_failure_splits_the_batch_without_using_up_a_retry() -> None:
    """Both halves follow in order."""
    outcome = batches.settle(Batch(BATCH.records[:3], 1), 0, retries_max=1)

    assert outcome == Outcome((Batch(records("a"), 1), Batch(records("b", "c"), 1)))


@pytest.mark.parametrize(("failures", "given_up"), [(0, False), (1, False), (2, True)])
def test_a_single_record_is_given_up_after_its_retries(failures: int, given_up: bool) -> None:
    """Two retries are three tries."""
    outcome = batches.settle(Batch(records("a"), failures), 0, retries_max=2)
    next_batch = Batch(records("a"), failures + 1)

    assert outcome == (Outcome(given_up=next_batch) if given_up else Outcome((next_batch,)))


def test_old_records_are_told_from_young_ones() -> None:
    """A record exactly at the limit is still young."""
    old, limit = records("a", created_ms=999), records("b", created_ms=1000)
    split = batches.drop_old(Batch(old + limit), now_ms=61_000, age_max_s=60)

    assert split == (Batch(old), Batch(limit))
