"""The tables of the twin, and the leases of a killed run in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError

from tidings.aws.config import deployment, stages
from tidings.aws.config.settings import CoordinatorUrl
from tidings.aws.dynamodb import served
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.core.replication.source import addresses

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import StreamSpecificationTypeDef
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient

    from tidings.core.replication.source import Sources

STAGE = stages.LOCAL_STAGE
PREFIX = f"tidings-{STAGE}-"
_CONFIG = Config(
    connect_timeout=2, read_timeout=10, retries={"max_attempts": 2, "mode": "standard"}, proxies={}
)


def tables_client(endpoint_url: str) -> DynamoDBClient:
    known = stages.LOCAL_CREDENTIALS
    return boto3.client("dynamodb", endpoint_url=endpoint_url, config=_CONFIG, **known)


def streams_client(endpoint_url: str) -> DynamoDBStreamsClient:
    known = stages.LOCAL_CREDENTIALS
    return boto3.client("dynamodbstreams", endpoint_url=endpoint_url, config=_CONFIG, **known)


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


def publish_feeds(client: DynamoDBClient, feeds: Iterable[str], sources: Sources) -> None:
    """Store the names of all feeds and of the chained feeds, as the outputs of a stack do."""
    item = served.encode_served(feeds, addresses(sources))
    client.put_item(TableName=table_name("control"), Item=item)


def create_coordination(url: str, coordinator: CoordinatorUrl | None) -> None:
    """Create the table of the leader election, unless another twin has created it.

    If the DynamoDB that has the table is not running, do nothing; a twin that starts later creates
    the table.
    """
    if coordinator is not None:
        client = tables_client(coordinator.endpoint or url)
        with contextlib.suppress(EndpointConnectionError):
            create_table(client, coordinator.table, deployment.COORDINATION_TABLE)


def free_leases(client: DynamoDBClient, feeds: Iterable[str], chained: Iterable[str]) -> None:
    """Release the leases of all followers and relays.

    Call this function only at a start, when no process can hold a lease: the workers of a previous
    run ended with that run.
    """
    control = table_name("control")
    for feed in feeds:
        followers = client.query(
            TableName=control,
            KeyConditionExpression="kind = :kind",
            ExpressionAttributeValues={":kind": {"S": f"follower#{feed}"}},
            ConsistentRead=True,
        )
        for item in followers["Items"]:
            client.update_item(
                TableName=control,
                Key={"kind": item["kind"], "name": item["name"]},
                UpdateExpression="REMOVE #owner, lease_until",
                ExpressionAttributeNames={"#owner": "owner"},
            )
    store = DynamoDBRelays(client, table_name("log"), control)
    for feed in chained:
        relay = store.relay(feed)
        if relay.owner:
            store.write(relay, replace(relay, owner="", lease_until_ms=0))
