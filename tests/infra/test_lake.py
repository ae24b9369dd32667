"""The tables of a stage and compaction: the start of the job, and its rights."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.settings import InvalidSetting, Lake, choose_stages
from tests.infra.templates import Template, of_assembly, synthesised, text
from tidings.aws.config import deployment
from tidings.lake import iceberg

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def lake(assembly: Path) -> Template:
    """A stage that has it, and a key of its own."""
    (staging,) = choose_stages("staging")
    assert staging.lake and staging.customer_key
    return Template(staging, of_assembly(assembly, "staging"))


def states(template: Template) -> dict[str, Any]:
    _, machine = template.only("AWS::StepFunctions::StateMachine", "Lake")
    found: dict[str, Any] = json.loads(text(machine["DefinitionString"]))["States"]
    return found


def task(template: Template, name: str = "Follow") -> dict[str, Any]:
    found: dict[str, Any] = states(template)[name]
    return found


def test_a_stage_without_an_archive_has_no_tables() -> None:
    """There would be nothing in them."""
    (staging,) = choose_stages("staging")
    made = synthesised(replace(staging, archive=False))

    assert not any(name.startswith("Lake") for name in made.body["Resources"])


def test_the_machine_follows_unless_it_is_told_to_compact(lake: Template) -> None:
    """Any other input, and none, brings the tables to the end of the feed."""
    which = states(lake)["Which"]

    assert which["Default"] == "Follow"
    assert which["Choices"] == [{"Variable": "$.compact", "IsPresent": True, "Next": "Compact"}]
    assert arguments(lake, "Compact")["--compact"] == "yes"
    assert "--compact" not in arguments(lake)


def test_minutes_and_columns_reach_the_job() -> None:
    """With the settings' values; a run may last as long, plus its own work."""
    (staging,) = choose_stages("staging")
    lake = Lake("rate(1 hour)", minutes=55, columns={"video": {"title": "string"}})
    made = synthesised(replace(staging, lake=lake))

    told = arguments(made)
    assert (told["--minutes"], told["--columns"]) == ("55", '{"video":{"title":"string"}}')
    assert task(made)["Parameters"]["ExecutionTimeoutMinutes"] > 55
    clocks = made.resources("AWS::Scheduler::Schedule")
    assert sum(name.startswith("Lake") for name in clocks) == 1


def test_a_lake_that_could_not_run_is_refused() -> None:
    """With the setting, its value and the rule."""
    with pytest.raises(InvalidSetting, match=r"lake\.minutes: must be from 0 to 720, is 721"):
        Lake("rate(1 day)", minutes=721)
    with pytest.raises(InvalidSetting, match=r"lake\.columns: .*'title': type 'text'"):
        Lake("rate(1 day)", columns={"video": {"title": "text"}})


def arguments(template: Template, name: str = "Follow") -> dict[str, str]:
    submit = task(template, name)["Parameters"]["JobDriver"]["SparkSubmit"]
    told = submit["EntryPointArguments"]
    return dict(zip(told[::2], told[1::2], strict=True))


def test_the_job_is_told_where_everything_is(lake: Template) -> None:
    """On the application of syncs, with a script and packages of its own."""
    found, told = task(lake), arguments(lake)
    submit = found["Parameters"]["JobDriver"]["SparkSubmit"]["SparkSubmitParameters"]

    assert found["Resource"].endswith(":states:::emr-serverless:startJobRun.sync")
    assert found["Parameters"]["ApplicationId"].startswith("<SyncJobApplication")
    assert told["--feeds"] == "main"
    assert told["--archive"].startswith("s3://<Archive")
    assert told["--table"].startswith("s3://<Lake")
    assert told["--glue"] == "tidings_staging_lake"
    for name in ("log", "state", "control"):
        assert told[f"--{name}-table"].startswith(f"<Tables{name.title()}")
    assert "spark.sql.extensions=org.apache.iceberg" in submit


def test_the_job_runs_the_iceberg_that_the_tests_run(template: Template, assembly: Path) -> None:
    """By the bytes of the uploads, with the SDK for Glue and S3; the job may read both."""
    if template.stage.lake is None:
        return
    found = task(template)["Parameters"]
    submit = found["JobDriver"]["SparkSubmit"]["SparkSubmitParameters"]
    jars = re.search(r"spark\.jars=(\S+)", submit)
    assert jars
    names = [each.rpartition("/")[2] for each in jars[1].split(",")]
    role = found["ExecutionRoleArn"].strip("<>")[:-4]
    read = {resource for action, resource in template.may(role) if action == "s3:GetObject"}

    sums = [hashlib.sha256((assembly / f"asset.{each}").read_bytes()).hexdigest() for each in names]
    assert sums == [iceberg.RUNTIME.sha256, iceberg.AWS.sha256]
    assert set(names) <= {each.rpartition("/")[2] for each in read}


def test_the_job_may_do_its_work_and_no_more(lake: Template) -> None:
    """Parts, tables, names in Glue, positions of consumers; logs and states may only be read."""
    role = task(lake)["Parameters"]["ExecutionRoleArn"].strip("<>")[:-4]
    found = lake.may(role)
    below = {
        (action, resource.rpartition("/*")[0].rpartition(">")[2])
        for action, resource in found
        if action in ("s3:PutObject", "s3:DeleteObject")
    }
    tables = {resource for action, resource in found if action.startswith("dynamodb:")}

    assert below == {
        ("s3:PutObject", "/archive"),
        ("s3:DeleteObject", "/archive"),
        ("s3:PutObject", "/tables"),
        ("s3:DeleteObject", "/tables"),
        ("s3:PutObject", "/logs"),
    }
    assert [grant.table for grant in deployment.LAKE_GRANTS] == ["log", "state", "control"]
    assert len(tables) == len(deployment.LAKE_GRANTS)
    actions = {action for action, _ in found if action.startswith("dynamodb:")}
    writes = {"dynamodb:UpdateItem", "dynamodb:DeleteItem"}  # the record of a feed without tables
    assert actions == {"dynamodb:GetItem", "dynamodb:Query"} | writes
    (written,) = {resource for action, resource in found if action in writes}
    assert "TablesControl" in written
    glue = {resource for action, resource in found if action.startswith("glue:")}
    assert {each.rpartition(":")[2] for each in glue} == {
        "catalog",
        "database/tidings_staging_lake",
        "table/tidings_staging_lake/*",
    }
    services = {action.partition(":")[0] for action, _ in found}
    assert services == {"dynamodb", "glue", "kms", "s3"}


def test_the_clock_starts_one_machine(lake: Template) -> None:
    """By two schedules, one of which says that it compacts; each may do nothing else."""
    clocks = [
        each
        for name, each in lake.resources("AWS::Scheduler::Schedule").items()
        if name.startswith("Lake")
    ]
    machine, _ = lake.only("AWS::StepFunctions::StateMachine", "Lake")
    assert lake.stage.lake is not None

    given = {each["ScheduleExpression"]: each["Target"].get("Input") for each in clocks}
    assert given == {lake.stage.lake.every: None, lake.stage.lake.compacts: '{"compact": true}'}
    for clock in clocks:
        assert machine in text(clock["Target"]["Arn"])
        role = clock["Target"]["RoleArn"]["Fn::GetAtt"][0]
        assert {action for action, _ in lake.may(role)} == {"states:StartExecution"}
