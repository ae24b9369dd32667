"""The tables of the blueprint in the store, and the release of leases left by a killed run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidings.aws.config import deployment
from tidings.aws.dynamodb import profiles
from tidings.core.replication.source import addresses
from tidings.twin.options import PREFIX

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import StreamSpecificationTypeDef

    from tidings.core.replication.source import Sources


def name_of(table: str) -> str:
    return PREFIX + table


def create(client: DynamoDBClient) -> None:
    """Create the missing tables; leave existing ones unchanged."""
    for table in deployment.TABLES:
        create_one(client, name_of(table.name), table)


def create_one(client: DynamoDBClient, name: str, table: deployment.Table) -> None:
    """Create *table* as *name* unless it exists, or another process is creating it."""
    pages = client.get_paginator("list_tables").paginate()
    if name not in {each for page in pages for each in page["TableNames"]}:
        with contextlib.suppress(client.exceptions.ResourceInUseException):
            _create(client, name, table)


def tell_feeds(client: DynamoDBClient, feeds: Iterable[str], sources: Sources) -> None:
    """Store the names of the feeds, and the chained ones, like the outputs of a stack."""
    item = profiles.encode_served(feeds, addresses(sources))
    client.put_item(TableName=name_of("control"), Item=item)


def free_leases(client: DynamoDBClient, feeds: Iterable[str]) -> int:
    """
    Release every follower's lease and return their number.

    Only valid if no process can hold one: the workers of the previous run died with their twin.
    """
    freed = 0
    for feed in feeds:
        followers = client.query(
            TableName=name_of("control"),
            KeyConditionExpression="kind = :kind",
            ExpressionAttributeValues={":kind": {"S": f"follower#{feed}"}},
            ConsistentRead=True,
        )
        for item in followers["Items"]:
            if "lease_until" in item:
                _free(client, item["kind"]["S"], item["name"]["S"])
                freed += 1
    return freed


def _free(client: DynamoDBClient, kind: str, name: str) -> None:
    client.update_item(
        TableName=name_of("control"),
        Key={"kind": {"S": kind}, "name": {"S": name}},
        UpdateExpression="REMOVE #owner, lease_until",
        ExpressionAttributeNames={"#owner": "owner"},
    )


def _create(client: DynamoDBClient, name: str, table: deployment.Table) -> None:
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
