"""AWS clients, each created once per process with time limits for its purpose, and their errors.

The clients work like those of `boto3.client`, but botocore creates them. Boto3 would also import
s3transfer and multiprocessing, which are not used and take 11 ms of every start. Botocore reads the
endpoint, the Region and the credentials from the environment.
"""

from __future__ import annotations

import json
import random
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.loaders import create_loader
from botocore.parsers import ResponseParserError
from botocore.session import Session

from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client

    from tidings.aws.dynamodb.attributes import Item


_CONNECT_S = 1  # within a Region, connecting takes 1 ms; after 1 s it will not succeed any more
_READ_S = 3  # three attempts fit in the ten seconds of the functions that append pages
_LEASE_READ_S = 1  # a quarter of the duration of a leader lease
_LEASE_ATTEMPTS = 2  # the second attempt opens a new connection, because the first may be dead
_ATTEMPTS = 3
_CONNECTIONS = 16  # the number of sending threads of one process, plus a margin

# A cache of the parsed service descriptions; parsing takes 25 of the 35 ms of creating the first
# client. A snapshot may contain the cache, because the cache has no state of the process
# (`stage.prepare_snapshot`).
_DESCRIPTIONS = create_loader()


def _config(attempts: int) -> Config:
    return Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"mode": "standard", "total_max_attempts": attempts},
        tcp_keepalive=True,
        max_pool_connections=_CONNECTIONS,
        parameter_validation=False,  # it would check every attribute of a batch; mypy checks them
    )


@cache
def session() -> Session:
    """Return the session that the clients share, with its credentials."""
    made = Session()
    made.register_component("data_loader", _DESCRIPTIONS)
    return made


def _dynamodb(config: Config, **where: Any) -> DynamoDBClient:
    made = session().create_client("dynamodb", config=config, **where)
    client = cast("DynamoDBClient", made)
    read_items_raw(client)
    events: Any = client.meta.events  # its type does not know that a hook may return something
    events.register("needs-retry.dynamodb", _wait_for_conflict)
    return client


@cache
def dynamodb() -> DynamoDBClient:
    return _dynamodb(_config(_ATTEMPTS))


@cache
def dynamodb_once() -> DynamoDBClient:
    """Return a client that does not retry, for writes without a condition.

    With retries, a first attempt might time out, and DynamoDB might execute it only after the
    second attempt. The first attempt could then overwrite a later write.
    """
    return _dynamodb(_config(1))


@cache
def coordination(region: str, endpoint: str) -> DynamoDBClient:
    """Return a client for the table of the leader election, which may be in another Region.

    A leader lease is renewed every second, so requests wait at most one second for an answer.
    """
    config = _config(_LEASE_ATTEMPTS).merge(Config(read_timeout=_LEASE_READ_S))
    where: Any = {"region_name": region or None, "endpoint_url": endpoint or None}
    return _dynamodb(config, **where)


@cache
def functions() -> LambdaClient:
    made = session().create_client("lambda", config=_config(_ATTEMPTS))
    return cast("LambdaClient", made)


@cache
def objects() -> S3Client:
    return cast("S3Client", session().create_client("s3", config=_config(_ATTEMPTS)))


def ca_certs() -> str | None:
    """Return the file of CA certificates that botocore uses, for requests without botocore."""
    from botocore.httpsession import get_cert_path

    return session().get_config_variable("ca_bundle") or get_cert_path(True)


_OK = 200


def read_items_raw(client: DynamoDBClient) -> None:
    """Make `client.query` and `client.scan` return items with binary values in base64."""
    for operation in ("Query", "Scan"):
        event = f"before-parse.dynamodb.{operation}"
        client.meta.events.register(event, _take_items, unique_id=f"tidings-{operation}")


def _take_items(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    if response_dict["status_code"] != _OK:
        return
    answer = json.loads(response_dict["body"])
    customized_response_dict["Items"] = answer.pop("Items", [])
    response_dict["body"] = json.dumps(answer).encode()


# The errors of AWS, grouped by their meaning: codes of answers, and of the reasons of a
# transaction. Other errors are mistakes of the deployment or of this code (a missing permission or
# table, an invalid request, a token used twice). No repetition cures them, so they are raised
# unchanged.
#
# | the request | then |
# |---|---|
# | was refused, because its condition does not hold | `ConditionFailed`, the caller decides |
# | was not executed, because another one holds the item | repeated after pauses, `Unavailable` |
# | was not executed, because too many were sent | repeated by botocore, `Unavailable` |
# | was not executed, because the function is being changed | `Unavailable`; a wake-up is lost |
# | may have been executed: any 5xx, no answer, half an answer | repeated by botocore if it has a
#   condition or does no harm twice, `Unavailable` |
#
# A service answers 503 for `Unavailable`. What only one adapter sees is decided there: items left
# over by a batch (`table`), an object that exists (`s3`), a connection that is gone (`sockets`).
_CANCELLED = "TransactionCanceledException"
_REFUSED = frozenset({"ConditionalCheckFailedException", "ConditionalCheckFailed"})
_HELD = frozenset(
    {
        "ReplicatedWriteConflictException",
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
THROTTLES = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "SlowDown",
        "ThrottledException",
        "ThrottlingError",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_CHANGING = frozenset({"ResourceConflictException", "SnapStartNotReadyException"})
_SLOW = frozenset({"RequestTimeout", "RequestTimeoutException"})  # S3 stopped waiting for the body
_PASSING = _HELD | THROTTLES | _CHANGING | _SLOW | {_CANCELLED}  # the last one without reasons
_FAULT, _TOO_MANY = 500, 429
CONFLICT_WAIT_S = 0.04  # a transaction takes 10 to 30 ms
_CONFLICT_ATTEMPTS = 5  # they wait 0.3 to 0.6 s in all


def _codes(response: Mapping[str, Any]) -> frozenset[str]:
    """Return the code of an error; for a cancelled transaction, the reasons of its writes."""
    code = response.get("Error", {}).get("Code", "")
    reasons = response.get("CancellationReasons", ()) if code == _CANCELLED else ()
    return frozenset(each.get("Code", "") for each in reasons) - {"None", ""} or frozenset({code})


def _wait_for_conflict(
    response: tuple[object, Mapping[str, Any]] | None, attempts: int, **_: object
) -> float | None:
    """Return how many seconds botocore waits before it repeats the request; None if it should not.

    DynamoDB refuses a write of an item that is in a transaction at this moment. Such a write was
    not executed, but botocore does not repeat it.
    """
    if not response or not _codes(response[1]) <= _HELD:
        return None
    share = 0.5 + random.random() / 2
    return CONFLICT_WAIT_S * 2 ** (attempts - 1) * share if attempts < _CONFLICT_ATTEMPTS else None


class ConditionFailed(Exception):
    """A conditional write or a transaction with one was refused.

    *item* is the existing item; it is empty if no item exists, if the request did not ask for the
    item, or after a transaction. *retried* is True if botocore repeated the write. Its first
    attempt may then have written *item*.
    """

    def __init__(self, item: Item, *, retried: bool) -> None:
        self.item, self.retried = item, retried
        super().__init__("the condition of a write failed")


# A body that ends early (S3) or is not of the protocol (a proxy between us and AWS) is no answer.
_NO_ANSWER = (ConnectionError, HTTPClientError, IncompleteReadError, ResponseParserError)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the errors of one call to AWS. Other errors are raised unchanged.

    Raises:
        ConditionFailed: the condition of the write, or one of a transaction, did not hold.
        Unavailable: the service is still unavailable, or a transaction still holds the item, after
            the retries.
    """
    try:
        yield
    except ClientError as error:
        raise _translate(error) from error
    except _NO_ANSWER as error:
        raise Unavailable(str(error)) from error


def status_of(error: ClientError) -> int:
    return error.response["ResponseMetadata"]["HTTPStatusCode"]


def _translate(error: ClientError) -> Exception:
    response: dict[str, Any] = {**error.response}
    codes = _codes(response)
    if codes & _REFUSED:
        retried = response["ResponseMetadata"].get("RetryAttempts", 0) > 0
        return ConditionFailed(response.get("Item", {}), retried=retried)
    if codes <= _PASSING or status_of(error) >= _FAULT or status_of(error) == _TOO_MANY:
        return Unavailable(str(error))
    return error
