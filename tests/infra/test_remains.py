"""What a destroyed stack has left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra import remains
from infra.remains import LOGS, Part, WrongRemains

LATE = {"Logs": Part(LOGS, "/aws/lambda/sweep")}
TEMPLATE = {"Resources": {"Logs": {"DeletionPolicy": "Delete"}}}


class Place:
    def client(self, service: str) -> Any:
        make: Any = boto3.client
        return make(service, region_name="eu-west-1")


@pytest.fixture
def place() -> Iterator[Place]:
    with mock_aws():
        yield Place()


def test_logs_of_a_call_that_ended_late_are_not_left_behind(place: Place) -> None:
    """Lambda makes the group anew for them, behind CloudFormation's back."""
    began_ms = time.time() * 1000 - 1
    place.client("logs").create_log_group(logGroupName="/aws/lambda/sweep")
    assert remains.check(place, TEMPLATE, LATE, began_ms).endswith("0 of 1 log groups")


def test_logs_that_were_there_before_are(place: Place) -> None:
    """Whatever CloudFormation said of them."""
    place.client("logs").create_log_group(logGroupName="/aws/lambda/sweep")
    with pytest.raises(WrongRemains, match="Logs"):
        remains.check(place, TEMPLATE, LATE, time.time() * 1000 + 1000)
