"""A pipeline on EMR Serverless: its package, its restarts and its rights."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import boto3
import cdk_nag
import pytest
from moto import mock_aws
from moto.emrserverless import models
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import (
    state_task_service_aws_sdk as aws_sdk,
)
from moto.stepfunctions.parser.asl.utils.boto_client import boto_client_for

from infra import synth
from infra.settings import InvalidSetting, PipelineRun, Stage, choose_stages
from infra.stack import PipelinesStack
from tests.infra.templates import Template, app, text

REGION = "eu-west-1"
SECRET = "arn:aws:secretsmanager:eu-west-1:111111111111:secret:catalogue-AbCdEf"
NETWORK = {
    "subnets": ("subnet-0123456789abcdef0", "subnet-0123456789abcdef1"),
    "security_groups": ("sg-0123456789abcdef0",),
}


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The CDK's output for a stage with a pipeline that was packed before."""
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "copy.tgz").write_bytes(b"packed")
    made = app(folder / "cdk.out")
    PipelinesStack(made, staged(folder / "copy.tgz"))
    cdk.Aspects.of(made).add(cdk_nag.AwsSolutionsChecks())
    made.synth()
    return folder / "cdk.out"


def staged(path: Path) -> Stage:
    run = PipelineRun("copy", str(path), **NETWORK, secrets=(SECRET,))
    (staging,) = choose_stages("staging")
    return replace(staging, pipelines=(run,))


@pytest.fixture(scope="module")
def deployed(assembly: Path) -> Template:
    (path,) = assembly.glob("*.template.json")
    return Template(staged(Path("copy.tgz")), json.loads(path.read_text()))


def definition(template: Template) -> dict[str, Any]:
    _, machine = template.only("AWS::StepFunctions::StateMachine", "PipelineCopy")
    found: dict[str, Any] = json.loads(text(machine["DefinitionString"]))
    return found


@pytest.mark.parametrize(
    ("field", "value"), [("subnets", ("subnet-0123456789abcdef0",)), ("security_groups", ())]
)
def test_a_job_without_a_network_reaches_neither_feed_nor_store(
    field: str, value: tuple[str, ...]
) -> None:
    """Then no pipeline is deployed; the error names the pipeline and the missing setting."""
    with pytest.raises(InvalidSetting, match=rf"pipelines\[copy\]\.{field}: must be at least"):
        PipelineRun("copy", "copy.tgz", **{**NETWORK, field: value})


@pytest.mark.node
def test_the_job_reads_its_secrets_and_nothing_of_the_feed(deployed: Template) -> None:
    """It comes to the feed as any client does, with a password."""
    role, _ = deployed.only("AWS::IAM::Role", "PipelineCopyJobRole")
    found = deployed.may(role)

    assert {action.partition(":")[0] for action, _ in found} == {
        *("events", "logs", "s3", "secretsmanager")
    }
    assert ("secretsmanager:GetSecretValue", SECRET) in found


@pytest.mark.node
def test_nobody_finds_fault_with_it(assembly: Path) -> None:
    """Neither cdk-nag nor cfn-lint."""
    assert synth.nag_findings(assembly) == []
    assert synth.lint_findings(sorted(assembly.glob("*.template.json"))) == []


class AsStatesSpell:
    """Step Functions spells parameters and answers with capitals; moto as the service does."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)

        def encoded(**parameters: Any) -> Any:
            answer = call(**cased(parameters, str.lower))
            return json.loads(json.dumps(cased(answer, str.upper), default=str))

        return encoded


def cased(value: Any, case: Any) -> Any:
    if isinstance(value, list):
        return [cased(each, case) for each in value]
    if isinstance(value, dict):
        return {case(name[0]) + name[1:]: cased(each, case) for name, each in value.items()}
    return value


@pytest.fixture
def emr(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """EMR Serverless and the interpreter of state machines, which has another name for it."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")

    def client(**how: Any) -> Any:
        assert how["service"] == "emrserverless"
        return AsStatesSpell(boto_client_for(**how | {"service": "emr-serverless"}))

    monkeypatch.setattr(aws_sdk, "boto_client_for", client)
    monkeypatch.setattr(models, "JOB_STATUS", "RUNNING")  # moto's jobs are done at once
    with mock_aws(config={"stepfunctions": {"execute_state_machine": True}}):
        yield boto3.client("emr-serverless", REGION)


@pytest.mark.node
def test_the_machine_keeps_one_run_of_what_is_deployed(deployed: Template, emr: Any) -> None:
    """It takes the place of an earlier deployment, and the next look leaves it as it is."""
    application = emr.create_application(name="a", releaseLabel="emr-7.0.0", type="SPARK")
    found = application["applicationId"]
    role = "arn:aws:iam::123456789012:role/x"
    emr.start_job_run(applicationId=found, name="zero", executionRoleArn=role, clientToken="z")
    machines = boto3.client("stepfunctions", REGION)

    def look(version: str) -> list[tuple[str, str]]:
        told = json.dumps(definition(deployed)).replace("<AWS::Partition>", "aws")
        told = told.replace(parameters(deployed)["Name"], version)
        told = told.replace(application_of(deployed), found)
        told = told.replace(parameters(deployed)["ExecutionRoleArn"], role)
        name = f"m{len(machines.list_state_machines()['stateMachines'])}"
        arn = machines.create_state_machine(name=name, definition=told, roleArn=role)
        started = machines.start_execution(stateMachineArn=arn["stateMachineArn"])
        ended(machines, started["executionArn"])
        runs = emr.list_job_runs(applicationId=found)["jobRuns"]
        return sorted((run["name"], run["state"]) for run in runs)

    once = [("one", "RUNNING"), ("zero", "CANCELLED")]
    assert look("one") == once
    assert look("one") == once
    assert look("two") == [("one", "CANCELLED"), ("two", "RUNNING"), ("zero", "CANCELLED")]


def application_of(template: Template) -> str:
    return str(definition(template)["States"]["Look"]["Parameters"]["ApplicationId"])


def parameters(template: Template) -> dict[str, Any]:
    """Return the parameters of the job's start."""
    found: dict[str, Any] = definition(template)["States"]["Start"]["Parameters"]
    return found


def ended(machines: Any, execution: str) -> None:
    until = time.monotonic() + 30
    while (told := machines.describe_execution(executionArn=execution))["status"] == "RUNNING":
        assert time.monotonic() < until
        time.sleep(0.05)
    assert told["status"] == "SUCCEEDED", told


@pytest.mark.node
def test_a_pipeline_that_waits_raises_an_alarm(deployed: Template) -> None:
    """A database that keeps too much of its log raises one, too; both name a runbook."""
    alarms = deployed.resources("AWS::CloudWatch::Alarm").values()
    filters = deployed.resources("AWS::Logs::MetricFilter").values()
    counted = {
        (made["MetricNamespace"], made["MetricName"], each["FilterPattern"])
        for each in filters
        for made in each["MetricTransformations"]
    }
    assert {(each["Namespace"], each["MetricName"]) for each in alarms} == {
        ("Tidings/staging", "PipelineWaiting"),
        ("Tidings/staging", "PipelineRetainedBytes"),
    }
    assert counted >= {
        ("Tidings/staging", "PipelineWaiting", "{ $.waiting_s >= 300 }"),
        ("Tidings/staging", "PipelineRetainedBytes", "{ $.retained_bytes >= 1073741824 }"),
    }
    for each in alarms:
        assert each["AlarmDescription"].endswith("RUNBOOKS.md#a-pipeline-waits")
        assert each["AlarmActions"] == [{"Fn::ImportValue": "tidings-staging-AlarmsTopic"}]
