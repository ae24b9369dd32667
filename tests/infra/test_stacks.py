"""The stack of each part of a stage, and the references between stacks."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]

from infra import ROOT, settings, suppressions, synth
from infra.settings import Lake, PipelineRun, Producer, Stage, SyncSchedule
from infra.stack import compose
from tests.infra.templates import app
from tidings.aws.config.stages import ACCOUNT_STACK, REGIONS, data_stack_name, stack_name

pytestmark = pytest.mark.node

RESOURCES_MAX = 500  # of a stack, as CloudFormation has it
FAR_AWAY = 440  # the maximum, so that a stage has room to grow
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
    """All resources with data, and besides them only resources that process them."""
    data = body(assembly, data_stack_name(stage.name))
    assert {each["Type"] for each in of(data, *DATA).values()} >= DATA - {"AWS::KMS::Key"}
    assert bool(of(data, "AWS::KMS::Key")) == stage.customer_key
    assert of(body(assembly, stack_name(stage.name)), *DATA) == {}


def test_a_stage_that_keeps_its_data_is_not_deleted_by_one_command(
    assembly: Path, stage: Stage
) -> None:
    """Neither its data nor its addresses; and resources with data are retained as well."""
    for name in (data_stack_name(stage.name), stack_name(stage.name)):
        protected = artifact(assembly, name)["properties"].get("terminationProtection", False)
        assert protected == stage.keep_data
    data = of(body(assembly, data_stack_name(stage.name)), *DATA).values()
    assert all((each["DeletionPolicy"].startswith("Retain")) == stage.keep_data for each in data)


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


def test_no_stack_is_near_its_limit(tmp_path: Path) -> None:
    """With everything that a stage may have, and much of it many times."""
    (tmp_path / "packed.tgz").write_bytes(b"packed")
    (prod,) = settings.choose_stages("prod")
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
                f"run{number}",
                str(tmp_path / "packed.tgz"),
                ("subnet-a", "subnet-b"),
                ("sg-0a1b2c3d",),
            )
            for number in range(MANY)
        ),
    )
    made = app(tmp_path / "cdk.out")
    compose(made, [stage])
    found = {each.stack_name: each.template for each in made.synth().stacks}
    assert len(found) == 5
    for name, template in found.items():
        assert len(template["Resources"]) <= FAR_AWAY < RESOURCES_MAX, name
        assert len(json.dumps(template)) < TEMPLATE_MAX * 0.9, name


def test_nag_finds_nothing_that_nobody_accepted(assembly: Path) -> None:
    """Every finding of cdk-nag is fixed or is listed with its reason in infra/suppressions.py."""
    assert synth.nag_findings(assembly) == []


def test_nag_reports_on_every_stage(assembly: Path) -> None:
    """An empty list of findings has reports, one for each stack."""
    reports = {path.name for path in assembly.glob("*-NagReport.csv")}

    stacks = [ACCOUNT_STACK]
    for stage in settings.STAGES:
        stacks += [data_stack_name(stage.name), stack_name(stage.name)]
    assert reports == {f"AwsSolutions--{stack}-NagReport.csv" for stack in stacks}


def test_cfn_lint_finds_nothing(assembly: Path) -> None:
    """The templates are what CloudFormation takes."""
    assert synth.lint_findings(sorted(assembly.glob("*.template.json"))) == []


def test_every_region_has_what_a_stage_needs(assembly: Path) -> None:
    """By cfn-lint's data; each of the other Regions lacks something."""
    kinds = _kinds(sorted(assembly.glob("*.template.json")))
    assert {each for region in REGIONS for each in _missing(kinds, region)} == set()
    for region in ("eu-south-2", "ap-east-2", "il-central-1", "us-gov-west-1"):
        assert region not in REGIONS
    others = {"eu-central-2", "ca-west-1", "ap-south-2", "us-gov-west-1", "cn-northwest-1"}
    assert all("AWS::Lambda::Url" in _missing(kinds, region) for region in others)
    page = (ROOT / "docs" / "operations" / "DEPLOY.md").read_text()
    assert all(f"`{region}`" in page for region in REGIONS)


def test_the_cdk_behaves_as_it_recommends(assembly: Path) -> None:
    """All its feature flags are set, except two, so that an update of the library adds new ones."""
    (library,) = (Path(cdk.__file__).parent / "_jsii").glob("aws-cdk-lib@*.tgz")
    with tarfile.open(library) as files:
        found = files.extractfile("package/recommended-feature-flags.json")
        assert found is not None
        recommended = json.load(found)
    ours = json.loads((ROOT / "cdk.json").read_text())["context"]
    others = {"@aws-cdk/core:target-partitions", "@aws-cdk/core:enableAdditionalMetadataCollection"}
    assert ours.keys() == recommended.keys()
    assert {name for name in ours if ours[name] != recommended[name]} == others


def test_every_suppression_is_used(assembly: Path) -> None:
    """A reason that no longer explains any finding is removed."""
    reports = "".join(path.read_text() for path in assembly.glob("*-NagReport.csv"))
    unused = [each.rule for each in suppressions.ACCEPTED if each.reason not in reports]

    assert unused == []


def _kinds(templates: list[Path]) -> set[str]:
    """Return the types of all resources in *templates*."""
    bodies = (json.loads(template.read_text()) for template in templates)
    return {each["Type"] for body in bodies for each in body["Resources"].values()}


def _missing(wanted: set[str], region: str) -> set[str]:
    """Return the types of *wanted* that AWS lacks in *region* according to cfn-lint's data."""
    return wanted - {*PROVIDER_SCHEMA_MANAGER.get_resource_types(region), "AWS::CDK::Metadata"}
