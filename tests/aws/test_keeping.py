"""A stage that keeps its data: `cdk destroy` leaves its stores, and is refused at first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra import cdk_cli, emulator, synth
from tests.aws.stage import Stage
from tidings.aws.config.stages import data_stack_name, stack_name

KEPT = "prod"
_STORES = ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::Logs::LogGroup")


@pytest.mark.timeout(1800)
def test_a_stage_that_keeps_its_data_leaves_its_stores_and_nothing_else(
    stage: Stage, tmp_path: Path
) -> None:
    if "AWS_ENDPOINT_URL" not in os.environ:
        pytest.skip("only on an emulator: stores would stay in the account")
    assembly, data, work = tmp_path / "assembly", data_stack_name(KEPT), stack_name(KEPT)
    synth.synth(assembly, stage=KEPT)
    emulator.adapt(assembly)
    cdk = cdk_cli.Cdk(assembly, {})
    cdk.deploy(work)
    stores = {
        name: (kind, each)
        for stack in (data, work)
        for name, (kind, each) in stage.resources(stack).items()
        if kind in _STORES
    }
    wanted = {name for name in stores if _policy(assembly, name).startswith("Retain")}
    cloudformation = stage.client("cloudformation")
    for stack in (data, work):
        with pytest.raises(ClientError):
            cloudformation.delete_stack(StackName=stack)
        cloudformation.update_termination_protection(
            StackName=stack, EnableTerminationProtection=False
        )
    cdk.destroy(data)
    there = _there(stage)
    assert {name for name, (_, each) in stores.items() if each in there} == wanted
    assert wanted


def _policy(assembly: Path, logical: str) -> str:
    """Return the DeletionPolicy of a resource of either stack."""
    found: dict[str, Any] = {}
    for stack in (data_stack_name(KEPT), stack_name(KEPT)):
        template = json.loads((assembly / f"{stack}.template.json").read_text())
        found |= template["Resources"].get(logical, {})
    return str(found.get("DeletionPolicy", ""))


def _there(stage: Stage) -> set[str]:
    """Return the names of all tables, buckets and log groups."""
    tables = stage.client("dynamodb").get_paginator("list_tables").paginate()
    groups = stage.client("logs").get_paginator("describe_log_groups").paginate()
    return {
        *(name for page in tables for name in page["TableNames"]),
        *(each["Name"] for each in stage.client("s3").list_buckets()["Buckets"]),
        *(each["logGroupName"] for page in groups for each in page["logGroups"]),
    }
