"""Which stack a part of a stage is in, and what the stacks know of each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from tidings.aws.config.stages import ACCOUNT_STACK, data_stack_name, stack_name

from infra import remains, settings, whole
from infra.settings import Lake, PipelineRun, Producer, Stage, SyncSchedule
from infra.stack import compose
from tests.infra.templates import text

pytestmark = pytest.mark.node

RESOURCES_MAX = 500  # of a stack, as CloudFormation has it
FAR_AWAY = 400  # so many at most, that there is room for what a stage gets next
TEMPLATE_MAX = 1_000_000  # bytes, as CloudFormation takes it from S3; a tenth of it in reserve
MANY = 20  # producers, each with its capture, and as many pipelines
STREAM = "arn:aws:dynamodb:eu-west-1:123456789012:table/videos/stream/2026-01-01T00:00:00.000"
DATA = {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key"}

Body = dict[str, Any]


@pytest.fixture(params=settings.STAGES, ids=lambda stage: stage.name)
def stage(request: pytest.FixtureRequest) -> Stage:
    found: Stage = request.param
    return found


def body(assembly: Path, stack: str) -> Body:
    found: Body = json.loads((assembly / f"{stack}.template.json").read_text())
    return found


def of(template: Body, *kinds: str) -> dict[str, Body]:
    return {name: each for name, each in template["Resources"].items() if each["Type"] in kinds}


def artifact(assembly: Path, stack: str) -> Body:
    manifest = json.loads((assembly / "manifest.json").read_text())
    found: Body = manifest["artifacts"][stack]
    return found


def test_what_holds_data_is_in_the_data_stack(assembly: Path, stage: Stage) -> None:
    """All of it, and nothing of it beside what works on it."""
    data = body(assembly, data_stack_name(stage.name))
    assert {each["Type"] for each in of(data, *DATA).values()} >= DATA - {"AWS::KMS::Key"}
    assert bool(of(data, "AWS::KMS::Key")) == stage.customer_key
    assert of(body(assembly, stack_name(stage.name)), *DATA) == {}


def test_a_stage_that_keeps_its_data_is_not_deleted_by_one_command(
    assembly: Path, stage: Stage
) -> None:
    """Neither its data nor its addresses; and what holds data is retained besides."""
    for name in (data_stack_name(stage.name), stack_name(stage.name)):
        protected = artifact(assembly, name)["properties"].get("terminationProtection", False)
        assert protected == stage.keep_data
    data = of(body(assembly, data_stack_name(stage.name)), *DATA).values()
    assert all((each["DeletionPolicy"] in remains.RETAINED) == stage.keep_data for each in data)


def test_to_deploy_a_stage_deploys_what_it_needs_before(assembly: Path, stage: Stage) -> None:
    """`cdk deploy tidings-dev` takes along what a stack depends on."""
    needed = artifact(assembly, stack_name(stage.name))["dependencies"]
    assert {ACCOUNT_STACK, data_stack_name(stage.name)} <= {*needed}


def test_the_logging_role_is_the_accounts(assembly: Path, stage: Stage) -> None:
    """
    One stack has it, and no stage: API Gateway refuses a WebSocket stage with logs in an account
    without one. It stays when that stack goes.
    """
    kinds = ("AWS::ApiGateway::Account", "AWS::IAM::Role")
    shared = of(body(assembly, ACCOUNT_STACK), *kinds)
    assert sorted(each["Type"] for each in shared.values()) == sorted(kinds)
    assert all(each["DeletionPolicy"] == "Retain" for each in shared.values())
    assert of(body(assembly, stack_name(stage.name)), "AWS::ApiGateway::Account") == {}


def test_what_is_read_is_written(assembly: Path, stage: Stage) -> None:
    """By the data stack alone, one parameter a value; nothing is imported, and none is idle."""
    data, work = (
        body(assembly, name) for name in (data_stack_name(stage.name), stack_name(stage.name))
    )
    written = [e["Properties"]["Name"] for e in of(data, "AWS::SSM::Parameter").values()]
    read = [
        each["Default"]
        for each in work["Parameters"].values()
        if each["Default"].startswith(f"/tidings/{stage.name}/")
    ]
    assert sorted(read) == sorted(written)
    assert "Fn::ImportValue" not in json.dumps([data, work])


def test_a_dashboard_has_its_region_in_its_name(assembly: Path) -> None:
    """An account has its dashboards for all Regions together."""
    boards = of(body(assembly, "tidings-prod"), "AWS::CloudWatch::Dashboard").values()
    assert [text(each["Properties"]["DashboardName"]) for each in boards] == [
        "tidings-prod-<AWS::Region>"
    ]


def test_no_stack_is_near_its_limit(tmp_path: Path) -> None:
    """With everything that a stage may have, and much of it many times."""
    (tmp_path / "packed.tgz").write_bytes(b"packed")
    (prod,) = settings.chosen("prod")
    stage = replace(
        prod,
        lake=Lake("rate(1 hour)", compacts="cron(0 4 ? * SUN *)"),
        seats=True,
        syncs=(SyncSchedule("cron(0 3 * * ? *)", {}),),
        producers=tuple(
            Producer(f"table{number}", STREAM, {"type": "video", "id": "{{id}}"})
            for number in range(MANY)
        ),
        pipelines=tuple(
            PipelineRun(
                f"run{number}", str(tmp_path / "packed.tgz"), ("subnet-a", "subnet-b"), ("sg",)
            )
            for number in range(MANY)
        ),
    )
    app = cdk.App(outdir=str(tmp_path / "cdk.out"))
    compose(app, [stage])
    found = {each.stack_name: each.template for each in app.synth().stacks}
    assert len(found) == 5
    for name, template in found.items():
        assert len(template["Resources"]) <= FAR_AWAY < RESOURCES_MAX, name
        assert len(json.dumps(template)) < TEMPLATE_MAX * 0.9, name


def test_the_stacks_are_joined_by_what_they_say_of_each_other() -> None:
    """A name that is read is a reference again, and an ARN that is made of a name is that ARN."""
    table = {"Type": "AWS::DynamoDB::Table"}
    told = {"Type": "AWS::SSM::Parameter"} | {
        "Properties": {"Name": "/tidings/dev/log-table", "Value": {"Ref": "Log"}}
    }
    parts = ["arn:", {"Ref": "AWS::Partition"}, ":dynamodb:", {"Ref": "AWS::Region"}, ":"]
    arn = {"Fn::Join": ["", [*parts, {"Ref": "AWS::AccountId"}, ":table/", {"Ref": "Is"}]]}
    below = {"Fn::Join": ["", [*arn["Fn::Join"][1], "/stream/*"]]}
    work = {
        "Parameters": {"Is": {"Default": "/tidings/dev/log-table"}},
        "Resources": {"User": {"Type": "X", "Name": {"Ref": "Is"}, "Arn": arn, "Below": below}},
    }
    found = whole.joined({"Resources": {"Log": table, "Told": told}}, work)["Resources"]
    assert found == {
        "Log": table,
        "User": {
            "Type": "X",
            "Name": {"Ref": "Log"},
            "Arn": {"Fn::GetAtt": ["Log", "Arn"]},
            "Below": {"Fn::Join": ["", [{"Fn::GetAtt": ["Log", "Arn"]}, "/stream/*"]]},
        },
    }
    with pytest.raises(KeyError):
        whole.joined({"Resources": {"Log": table}}, work)
