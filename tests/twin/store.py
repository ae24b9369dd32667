"""The twin's DynamoDB: boto3 clients, the deployed tables, and the leases of a killed run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
)

from tests.twin.options import PREFIX
from tidings.aws.config import deployment, twin_keys
from tidings.aws.config.deployment import COORDINATION_TABLE
from tidings.aws.config.settings import CoordinatorUrl
from tidings.aws.dynamodb import served
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.core.replication.source import addresses

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import StreamSpecificationTypeDef
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient

    from tidings.core.replication.source import Sources

_CONFIG = Config(
    connect_timeout=2, read_timeout=10, retries={"max_attempts": 2, "mode": "standard"}, proxies={}
)
LOOK_S = 0.5  # the interval of checks for a table that another program may create at any time


def tables_client(endpoint_url: str) -> DynamoDBClient:
    key = twin_keys.credentials(endpoint_url)
    return boto3.client("dynamodb", endpoint_url=endpoint_url, config=_CONFIG, **key)


def streams_client(endpoint_url: str) -> DynamoDBStreamsClient:
    key = twin_keys.credentials(endpoint_url)
    return boto3.client("dynamodbstreams", endpoint_url=endpoint_url, config=_CONFIG, **key)


def table_name(table: str) -> str:
    return PREFIX + table


def create_tables(client: DynamoDBClient) -> None:
    """Create the missing tables; leave existing ones unchanged."""
    for table in deployment.TABLES:
        create_table(client, table_name(table.name), table)


def create_table(client: DynamoDBClient, name: str, table: deployment.Table) -> None:
    """Create *table* as *name* unless it exists, or another process is creating it."""
    pages = client.get_paginator("list_tables").paginate()
    if name not in {each for page in pages for each in page["TableNames"]}:
        with contextlib.suppress(client.exceptions.ResourceInUseException):
            _create_table(client, name, table)


def publish_feeds(client: DynamoDBClient, feeds: Iterable[str], sources: Sources) -> None:
    """Store the names of all feeds and of the chained feeds, as the outputs of a stack do."""
    item = served.encode_served(feeds, addresses(sources))
    client.put_item(TableName=table_name("control"), Item=item)


def free_follower_leases(client: DynamoDBClient, feeds: Iterable[str]) -> int:
    """Release the leases of all followers; return the number of released leases.

    Call this function only at a start, when no process can hold a lease: the workers of a previous
    run ended with that run.
    """
    freed = 0
    for feed in feeds:
        followers = client.query(
            TableName=table_name("control"),
            KeyConditionExpression="kind = :kind",
            ExpressionAttributeValues={":kind": {"S": f"follower#{feed}"}},
            ConsistentRead=True,
        )
        for item in followers["Items"]:
            if "lease_until" in item:
                _free_follower(client, item["kind"]["S"], item["name"]["S"])
                freed += 1
    return freed


def _free_follower(client: DynamoDBClient, kind: str, name: str) -> None:
    client.update_item(
        TableName=table_name("control"),
        Key={"kind": {"S": kind}, "name": {"S": name}},
        UpdateExpression="REMOVE #owner, lease_until",
        ExpressionAttributeNames={"#owner": "owner"},
    )


def _create_table(client: DynamoDBClient, name: str, table: deployment.Table) -> None:
    sort_name, sort_type = table.sort_key
    stream: StreamSpecificationTypeDef = {"StreamEnabled": table.stream}
    if table.stream:
        stream["StreamViewType"] = "KEYS_ONLY"
    client.create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": table.partition_key, "KeyType": "HASH"},
            {"AttributeName": sort_name, "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": table.partition_key, "AttributeType": "S"},
            {"AttributeName": sort_name, "AttributeType": sort_type},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification=stream,
    )
    client.get_waiter("table_exists").wait(
        TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
    )
    client.update_time_to_live(
        TableName=name,
        TimeToLiveSpecification={"Enabled": True, "AttributeName": table.ttl_attribute},
    )


async def stream_of(url: str, table: str) -> str:
    """Wait until *table* has a stream; return its ARN."""
    client = tables_client(url)
    while (arn := await asyncio.to_thread(_stream, client, table)) is None:
        await asyncio.sleep(LOOK_S)
    return arn


def _stream(client: DynamoDBClient, table: str) -> str | None:
    try:
        return client.describe_table(TableName=table)["Table"].get("LatestStreamArn")
    except (BotoCoreError, ClientError):
        return None


def create_coordination(url: str, coordinator: CoordinatorUrl | None) -> None:
    """Create the table of the leader election, unless another twin has created it.

    If the DynamoDB that has the table is not running, do nothing; a twin that starts later creates
    the table.
    """
    if coordinator is None:
        return
    client = tables_client(coordinator.endpoint or url)
    with contextlib.suppress(EndpointConnectionError):
        create_table(client, coordinator.table, COORDINATION_TABLE)


def free_relays(client: DynamoDBClient, feeds: Iterable[str]) -> None:
    """Release the relays from the processes that held them.

    Call this function only if no process can hold a relay; see `free_follower_leases`.
    """
    store = DynamoDBRelays(client, table_name("log"), table_name("control"))
    for feed in feeds:
        relay = store.relay(feed)
        if relay.owner:
            store.write(relay, replace(relay, owner="", lease_until_ms=0))
