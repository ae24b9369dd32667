"""The state machine of syncs and the Spark they run on, as templates."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.parts import sync_states
from tests.infra.templates import Resource, Template, text
from tidings.core.sync import workflow

pytestmark = pytest.mark.node


def of_syncs(template: Template, kind: str) -> Resource:
    """Return the one resource of *kind* that is there for syncs."""
    return template.only(kind, "Sync")[1]


def states(template: Template) -> dict[str, Any]:
    machine = of_syncs(template, "AWS::StepFunctions::StateMachine")
    found: dict[str, Any] = json.loads(text(machine["DefinitionString"]))["States"]
    return found


def test_the_machine_is_the_one_that_the_tests_run(template: Template) -> None:
    """But for names that only AWS knows; tests/sync_machine executes the same states."""
    found = states(template)
    wiring = sync_states.Wiring(
        partition="<AWS::Partition>",
        region="<AWS::Region>",
        bucket=found["Apply"]["ItemReader"]["Parameters"]["Bucket"],
        topic=found["Tell"]["Parameters"]["TopicArn"],
        state_table_name=found["Measure"]["Parameters"]["TableName"],
        state_table_arn=found["Export"]["Parameters"]["TableArn"],
        steer=found["Check"]["Resource"],
        correct=found["Apply"]["ItemProcessor"]["States"]["Correct"]["Resource"],
        job=_as_started(found["Plan"]["Parameters"]),
    )

    assert found == sync_states.definition(wiring)["States"]


def test_no_step_loses_what_is_known(template: Template) -> None:
    """The CDK drops nulls: a task without a path for its answer would put it over everything."""
    for name, each in states(template).items():
        assert each["Type"] not in ("Task", "Map") or each["ResultPath"].startswith("$."), name


def test_spark_can_unpack_the_archive(template: Template) -> None:
    """It knows archives by how their names end, and the CDK keeps the last ending alone."""
    submit = states(template)["Plan"]["Parameters"]["JobDriver"]["SparkSubmit"]

    archive = r"--conf spark\.archives=s3://\S+\.tgz#environment "
    assert re.search(archive, submit["SparkSubmitParameters"])
    assert submit["EntryPoint"].endswith(".py")


def test_one_python_runs_driver_and_executors(template: Template) -> None:
    """The one that our code is for: a release may begin with an older one."""
    submit = states(template)["Plan"]["Parameters"]["JobDriver"]["SparkSubmit"]
    pairs = (each.split("=", 1) for each in submit["SparkSubmitParameters"].split() if "=" in each)

    assert {name for name, value in pairs if value == "/usr/bin/python3.11"} == {
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON",
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON",
        "spark.executorEnv.PYSPARK_PYTHON",
    }


def test_dynamodb_may_write_its_export(template: Template) -> None:
    """The rights that DynamoDB's documentation requires for an export: the ACL too, only there."""
    bucket, _ = template.only("AWS::S3::Bucket", "Syncs")
    below = f"<{bucket}.Arn>/exports/*"
    role, _ = template.only("AWS::IAM::Role", "SyncRole")
    objects = {(action, where) for action, where in template.may(role) if action.startswith("s3:")}

    assert {action for action, where in objects if where == below} == {
        "s3:AbortMultipartUpload",
        "s3:PutObject",
        "s3:PutObjectAcl",
    }
    assert [where for action, where in objects if action == "s3:PutObjectAcl"] == [below]


def test_every_step_is_tried_again_and_reported(template: Template) -> None:
    """Each task has retries, and each failure that ends the machine is reported."""
    found = states(template)
    tasks = {name: each for name, each in found.items() if each["Type"] == "Task"}

    for name, task in tasks.items():
        assert task["Retry"][0]["JitterStrategy"] == "FULL"
        assert name == "Report" or task["Catch"][-1]["Next"] in ("Report", "Ended")


def test_the_log_holds_no_tokens(template: Template) -> None:
    """Every event of an execution, without its data."""
    machine = of_syncs(template, "AWS::StepFunctions::StateMachine")
    logging = machine["LoggingConfiguration"]

    assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", False)


def test_an_uploaded_dump_starts_a_sync(template: Template) -> None:
    """The bucket notifies EventBridge, and the rule starts the machine with the key alone."""
    (rule,) = template.resources("AWS::Events::Rule").values()
    (target,) = rule["Targets"]
    bucket = template.body["Outputs"]["SyncBucket"]["Value"]["Ref"]
    told = template.resources("AWS::S3::Bucket")[bucket]["NotificationConfiguration"]

    assert told == {"EventBridgeConfiguration": {"EventBridgeEnabled": True}}
    assert rule["EventPattern"]["detail"]["bucket"]["name"] == [{"Ref": bucket}]
    assert rule["EventPattern"]["detail"]["object"]["key"] == [{"prefix": workflow.DUMPS}]
    assert target["InputTransformer"]["InputTemplate"] == '{"key": <key>}'


def _as_started(parameters: Resource) -> Resource:
    """Drop the parameters that the definition adds for each execution."""
    job = {name: value for name, value in parameters.items() if name != "Name.$"}
    submit = dict(job["JobDriver"]["SparkSubmit"])
    del submit["EntryPointArguments.$"]
    return job | {"JobDriver": {"SparkSubmit": submit}}
