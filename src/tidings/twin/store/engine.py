"""boto3 clients of the store, with its access key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3  # noqa: TID251 the twin creates tables and reads streams, as AWS itself does
from botocore.config import Config  # noqa: TID251 see above

from tidings.aws.config import twin_keys

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient

_CONFIG = Config(
    connect_timeout=2,
    read_timeout=10,
    retries={"max_attempts": 2, "mode": "standard"},
    proxies={},
)


def tables_client(endpoint_url: str) -> DynamoDBClient:
    key = twin_keys.credentials(endpoint_url)
    return boto3.client("dynamodb", endpoint_url=endpoint_url, config=_CONFIG, **key)


def streams_client(endpoint_url: str) -> DynamoDBStreamsClient:
    key = twin_keys.credentials(endpoint_url)
    return boto3.client("dynamodbstreams", endpoint_url=endpoint_url, config=_CONFIG, **key)
