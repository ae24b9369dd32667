"""Buckets of S3, by moto in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
import pytest
from moto import mock_aws

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REGION = "us-east-1"


@contextmanager
def holding(
    environment: pytest.MonkeyPatch, objects: Mapping[str, bytes], bucket: str = "dumps"
) -> Iterator[S3Client]:
    """Create a bucket with these objects; state machines can run too."""
    environment.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws(config={"stepfunctions": {"execute_state_machine": True}}):
        client = boto3.client("s3")
        client.create_bucket(Bucket=bucket)
        for key, data in objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=data)
        yield client
