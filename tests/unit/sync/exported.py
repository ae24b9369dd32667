"""An export of a table, as DynamoDB documents what it writes to S3."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from moto import mock_aws

from tests.twin import Twin, store

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ID = "01700000000000-a1b2c3d4"


def items(twin: Twin) -> list[dict[str, Any]]:
    """Return all items in the table of the state."""
    client = store.tables_client(twin.dynamodb_url)
    pages = client.get_paginator("scan").paginate(TableName=store.table_name("state"))
    return [dict(item) for page in pages for item in page["Items"]]


def written(folder: Path, files: Sequence[Iterable[dict[str, Any]]]) -> str:
    """Write an export with these items in its files; return its address."""
    packed = [_packed(each) for each in files]
    return manifested(folder, [(count, data) for count, data in packed])


def manifested(folder: Path, files: Sequence[tuple[int, bytes]]) -> str:
    """Write an export of these files, each with the number of its items."""
    export = folder / "AWSDynamoDB" / ID
    (export / "data").mkdir(parents=True)
    (export / "_started").touch()
    lines = []
    for number, (count, data) in enumerate(files):
        name = f"data/part{number}.json.gz"
        (export / name).write_bytes(data)
        key = f"some/prefix/AWSDynamoDB/{ID}/{name}"
        lines.append(json.dumps({"itemCount": count, "md5Checksum": "", "dataFileS3Key": key}))
    (export / "manifest-files.json").write_text("\n".join(lines) + "\n")
    summary = {"exportTime": "2026-01-01T00:00:00Z", "outputFormat": "DYNAMODB_JSON"}
    (export / "manifest-summary.json").write_text(json.dumps(summary))
    return f"file://{export}/"


def by_moto(found: Iterable[dict[str, Any]]) -> bytes:
    """Return the data file of an export of a table with these items."""
    with mock_aws():
        database = boto3.client("dynamodb", "us-east-1")
        buckets = boto3.client("s3", "us-east-1")
        buckets.create_bucket(Bucket="exports")
        started = database.export_table_to_point_in_time(
            TableArn=_filled(database, found), S3Bucket="exports", S3Prefix="some/prefix"
        )["ExportDescription"]
        while started["ExportStatus"] == "IN_PROGRESS":
            started = database.describe_export(ExportArn=started["ExportArn"])["ExportDescription"]
        (only,) = buckets.list_objects_v2(Bucket="exports")["Contents"]
        return buckets.get_object(Bucket="exports", Key=only["Key"])["Body"].read()


def _filled(database: DynamoDBClient, found: Iterable[dict[str, Any]]) -> str:
    """Create a table with these items and point-in-time recovery, which an export needs; return its
    ARN.
    """
    made = database.create_table(
        TableName="state",
        KeySchema=[
            {"AttributeName": "bucket", "KeyType": "HASH"},
            {"AttributeName": "key", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "bucket", "AttributeType": "S"},
            {"AttributeName": "key", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    database.update_continuous_backups(
        TableName="state", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    for item in found:
        database.put_item(TableName="state", Item=item)
    return made["TableDescription"]["TableArn"]


def _packed(found: Iterable[dict[str, Any]]) -> tuple[int, bytes]:
    lines = [json.dumps({"Item": each}, default=_base64) for each in found]
    text = "".join(f"{line}\n" for line in lines)
    return len(lines), gzip.compress(text.encode()) if lines else b""


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
