"""Stages with names that begin with another stage's name: each command finds only its own parts."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from infra import sandbox
from tidings.aws.config.stages import STAGE_TAG, Account, is_fixed_name

pytestmark = pytest.mark.usefixtures("account")
STAGES = ("ann", "ann-e", "ann-eu", "ann-data-x")

Names = dict[str, list[str]]


def _create(stage: str, *, tagged: bool) -> Names:
    """Create resources with the names that a stage gives; return the names by kind."""
    begin, tags = f"tidings-{stage}", {STAGE_TAG: stage} if tagged else {}
    pairs: Any = {"Tags": [{"Key": STAGE_TAG, "Value": stage}]} if tagged else {}
    groups = [f"/aws/{path}{begin}-{of}" for path, of in (("lambda/", "ingest"),)]
    groups += [f"/aws/vendedlogs/apigateway/{begin}-http", f"/aws/vendedlogs/states/{begin}-sync"]
    if tagged:  # only the settings of the stage have the names of pipelines
        groups.append(f"/aws/emr-serverless/{begin}-pipeline-x")
    for group in groups:
        boto3.client("logs").create_log_group(logGroupName=group, tags=tags)
    table = f"{begin}-data-TablesLog1A2B-X1Y2" if tagged else f"{begin}-log-2"
    boto3.client("dynamodb").create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "feed", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "feed", "AttributeType": "S"}],
        **pairs,
    )
    bucket, objects = f"{begin}-data-archive1a2b-x1y2", boto3.client("s3")
    objects.create_bucket(Bucket=bucket)
    if tagged:
        objects.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": pairs["Tags"]})
    jobs = boto3.client("emr-serverless")
    named = {"name": f"{begin}-sync", "releaseLabel": "emr-6.6.0", "type": "SPARK", "tags": tags}
    made = jobs.create_application(**named)["applicationId"]
    jobs.start_application(applicationId=made)
    return {"log_groups": sorted(groups), "tables": [table], "buckets": [bucket]}


def _found(stage: str) -> Names:
    """Return the resources of *stage*, as `tidings doctor` and `make destroy` find them."""
    account = Account(sandbox.client)
    return {
        "log_groups": sorted(account.log_groups(stage)),
        "tables": account.tables(stage),
        "buckets": account.buckets(stage),
    }


@pytest.mark.parametrize("tagged", [True, False])
def test_each_resource_is_of_one_stage(*, tagged: bool) -> None:
    """Destroying a stage that does not exist leaves the resources of the others."""
    created = {stage: _create(stage, tagged=tagged) for stage in STAGES[1:]}
    sandbox.Sandbox("ann").destroy()  # raises `Failed` if it counts a resource as its own
    listed = boto3.client("emr-serverless").list_applications()["applications"]
    assert {each["state"] for each in listed} == {"STARTED"}
    created["ann"] = _create("ann", tagged=tagged)
    assert {stage: _found(stage) for stage in STAGES} == created


@pytest.mark.parametrize(("tags", "owned"), [({STAGE_TAG: "ann-follow"}, False), ({}, True)])
def test_a_tag_decides_before_the_name(tags: dict[str, str], *, owned: bool) -> None:
    """A function of the stage `ann-follow` has the name of a function of the stage `ann`.

    A late call creates a deleted log group again, without tags.
    """
    name = "/aws/lambda/tidings-ann-follow-relay"
    boto3.client("logs").create_log_group(logGroupName=name, tags=tags)
    assert bool(Account(sandbox.client).log_groups("ann")) is owned


@pytest.mark.parametrize("name", ["ingest", "follow-state", "sync", "lake", "http", "reach"])
def test_names_without_tags(name: str) -> None:
    assert [each for each in STAGES if is_fixed_name(each, f"tidings-ann-e-{name}")] == ["ann-e"]
