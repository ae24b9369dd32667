"""boto3 clients of the store, with the credentials every part of the twin uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3  # noqa: TID251 the twin creates tables and reads streams, as AWS itself does
from botocore.config import Config  # noqa: TID251 see above
from tidings.local.options import REGION

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient

# DynamoDB Local accepts any, of letters and digits only.
ACCESS_KEY = "local"
SECRET_KEY = "local"

_CONFIG = Config(
    connect_timeout=2,
    read_timeout=10,
    retries={"max_attempts": 2, "mode": "standard"},
    proxies={},
)


def tables_client(endpoint_url: str) -> DynamoDBClient:
    return boto3.client(
        "dynamodb",
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=_CONFIG,
    )


def streams_client(endpoint_url: str) -> DynamoDBStreamsClient:
    return boto3.client(
        "dynamodbstreams",
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=_CONFIG,
    )
