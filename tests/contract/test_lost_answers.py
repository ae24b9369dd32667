"""A repeated write of a record is recognized as one's own if the first answer was lost.

DynamoDB recognizes a repeated transaction by its token, which moto ignores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from mypy_boto3_dynamodb import DynamoDBClient

from tests.contract.record_store import THING, put
from tests.contract.test_relays import client  # noqa: F401 - a fixture
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.core.records import Write, expected_version

FIRST = put("a", 0, by="ann", gone=None)
WRITES = {
    "UpdateItem": [FIRST],
    "DeleteItem": [Write(THING, "b", None, expected_version(1))],
}


@pytest.fixture
def records(client: DynamoDBClient) -> DynamoDBRecords:  # noqa: F811
    made = DynamoDBRecords(client, "control")
    assert made.write("main", [put("b", 0)])
    return made


@pytest.fixture
def repeating(client: DynamoDBClient) -> Callable[[str], None]:  # noqa: F811
    """Let botocore repeat the next request of an operation, as after a lost answer."""

    def repeat(operation: str) -> None:
        events: Any = client.meta.events  # its type does not know that a hook may return something
        events.register(f"needs-retry.dynamodb.{operation}", _first_only)

    return repeat


def _first_only(attempts: int, **_: object) -> float | None:
    return 0.0 if attempts == 1 else None


@pytest.mark.parametrize("operation", WRITES)
def test_a_write_whose_answer_was_lost_is_done(
    records: DynamoDBRecords, repeating: Callable[[str], None], operation: str
) -> None:
    """It is repeated, and finds what it has written itself."""
    repeating(operation)
    assert records.write("main", WRITES[operation])
    assert not records.write("main", [put("b", 1)]) or operation != "DeleteItem"


def test_the_same_write_by_another_process_is_refused(records: DynamoDBRecords) -> None:
    """It was not repeated, so it is not one's own."""
    assert records.write("main", [FIRST])
    assert not records.write("main", [FIRST])


def test_a_repeated_write_finds_that_of_another_process(
    records: DynamoDBRecords, repeating: Callable[[str], None]
) -> None:
    """It is not one's own."""
    assert records.write("main", [put("a", 0, by="bob")])
    repeating("UpdateItem")
    assert not records.write("main", [FIRST])
