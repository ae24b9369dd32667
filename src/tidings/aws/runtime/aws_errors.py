"""
Translation of AWS errors: a failed condition, or an unavailable service.

A service is unavailable if a retry may succeed: no connection, no answer in time, a server fault,
throttling. Any other error is a bug here and is raised as botocore's error.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidings.aws.dynamodb.attributes import Item

_FAULT = 500
THROTTLES = frozenset(
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

    *item* is the existing item; it is empty if it does not exist or was not requested. *retried*:
    botocore sent the write again, so that *item* may have been written by its first attempt.
    """

    def __init__(self, item: Item, *, retried: bool) -> None:
        self.item, self.retried = item, retried
        super().__init__("the condition of a write failed")


@contextmanager
def translated() -> Iterator[None]:
    """
    Translate the errors of one AWS call.

    Raises:
        ConditionFailed: the condition of the write did not hold.
        Unavailable: the service is still unavailable after botocore's retries.
    """
    try:
        yield
    except ClientError as error:
        raise _translate(error) from error
    except (ConnectionError, HTTPClientError) as error:
        raise Unavailable(str(error)) from error


def is_busy(error: ClientError) -> bool:
    """Return True if AWS throttled the request."""
    return error.response["Error"]["Code"] in THROTTLES or status_of(error) == 429


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
