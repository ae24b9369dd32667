"""
What AWS may answer beside the answer: a condition that failed, or bad weather.

Bad weather is what a retry may cure: no connection, no answer in time, a fault on their side,
throttling. Anything else is a mistake of ours and passes through as botocore's error.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError
from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidings.aws.dynamodb.items.attributes import Item

_FAULT = 500
_BUSY = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "TransactionInProgressException",
    }
)


class ConditionFailed(Exception):
    """
    A conditional write was refused.

    *item* is what was found, empty when there is none or it was not asked for. *retried*
    tells that botocore sent it again, so that the first attempt may have been the one found.
    """

    def __init__(self, item: Item, *, retried: bool) -> None:
        self.item, self.retried = item, retried
        super().__init__("the condition of a write failed")


@contextmanager
def translated() -> Iterator[None]:
    """
    Around one call of AWS.

    Raises:
        ConditionFailed: see there.
        Unavailable: bad weather that outlasted botocore's retries.
    """
    try:
        yield
    except ClientError as error:
        raise _translate(error) from error
    except (ConnectionError, HTTPClientError) as error:
        raise Unavailable(str(error)) from error


def is_busy(error: ClientError) -> bool:
    """Whether the other side refused for now."""
    return error.response["Error"]["Code"] in _BUSY or status_of(error) == 429


def status_of(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def _translate(error: ClientError) -> Exception:
    response: dict[str, Any] = {**error.response}
    if response["Error"]["Code"] == "ConditionalCheckFailedException":
        retried = response["ResponseMetadata"].get("RetryAttempts", 0) > 0
        return ConditionFailed(response.get("Item", {}), retried=retried)
    if is_busy(error) or status_of(error) >= _FAULT:
        return Unavailable(str(error))
    return error
