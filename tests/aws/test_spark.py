"""EMR Serverless: a sync by the stage's own job, an export, and the job's network access."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from infra.sandbox import end_applications
from infra.settings import SANDBOX_FEEDS
from tests.aws.stage import Stage, until
from tests.aws.test_reading import Record
from tidings.aws.config.stages import syncs_of
from tidings.core.sync import workflow

_FEED = SANDBOX_FEEDS[1]
_OBJECTS = 1000  # of the dump
_KIND = "sandbox"
_EXPORT_S = 2400  # ten minutes and more for a table of any size, and a job after it
_JOB_S = 1200
_LOG_S = 120  # until EMR Serverless has put the end of a log into the bucket
_PROBE = Path(__file__).with_name("reach_probe.py")
_PROBE_CAPACITY = {"cpu": "4 vCPU", "memory": "16 GB", "disk": "60 GB"}
_PROBE_SPARK = (
    "--conf spark.driver.cores=1 --conf spark.driver.memory=2g --conf spark.executor.cores=1"
    " --conf spark.executor.memory=2g --conf spark.executor.instances=1"
    " --conf spark.dynamicAllocation.enabled=false"
)
_ENDED = ("SUCCESS", "FAILED", "CANCELLED")


@pytest.fixture(autouse=True)
def jobs(stage: Stage) -> Any:
    """The client of EMR Serverless."""
    stage.require_aws("the emulator knows no EMR Serverless")
    return stage.client("emr-serverless")


@pytest.mark.timeout(_EXPORT_S)
def test_a_dump_is_compared_and_applied(
    stage: Stage, jobs: Any, tmp_path: Path, record_property: Record
) -> None:
    dump = tmp_path / "dump.json"
    lines = ({"type": _KIND, "id": f"{at}", "data": {"n": at}} for at in range(_OBJECTS))
    dump.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    asked = ("--stage", stage.name, "--feed", _FEED, "--types", _KIND, "--cloud", "--json")
    summary = json.loads(stage.tidings("sync", str(dump), *asked).splitlines()[-1])
    assert summary["applied"] == _OBJECTS
    application = _plan(stage)["ApplicationId"]
    runs = jobs.list_job_runs(applicationId=application)["jobRuns"]
    last = max(runs, key=lambda each: each["createdAt"])["id"]
    found = jobs.get_job_run(applicationId=application, jobRunId=last)["jobRun"]
    billed = found.get("billedResourceUtilization", {})
    record_property("vCPU hours", round(billed.get("vCPUHour", 0.0), 3))
    record_property("GB hours", round(billed.get("memoryGBHour", 0.0), 3))


@pytest.mark.timeout(2 * _EXPORT_S)
def test_the_machine_may_export_the_state_and_the_job_reads_the_export(stage: Stage) -> None:
    """Run a copy of the machine under its own role that takes every state for a large one."""
    machines, deployed = stage.client("stepfunctions"), _machine(stage)
    definition = json.loads(deployed["definition"])
    (large,) = definition["States"]["Large"]["Choices"]
    large["NumericGreaterThan"] = -1
    made = machines.create_state_machine(
        name=stage.named("export"), definition=json.dumps(definition), roleArn=deployed["roleArn"]
    )["stateMachineArn"]
    try:
        ended = _executed(stage, made, _request(stage))
    finally:
        machines.delete_state_machine(stateMachineArn=made)
    assert ended["status"] == "SUCCEEDED", f"{ended.get('error')}: {ended.get('cause')}"


def _request(stage: Stage) -> dict[str, Any]:
    """Upload a small dump where a command would put it; return the request for its sync."""
    bucket, line = _bucket(stage), json.dumps({"type": _KIND, "id": "exported"})
    key = f"{workflow.UPLOADS}{_KIND}/dump.json"
    stage.client("s3").put_object(Bucket=bucket, Key=key, Body=f"{line}\n".encode())
    dump = f"s3://{bucket}/{key}"
    return {"feed": _FEED, "dump": dump, "types": [_KIND], "deletes": False, "dry_run": True}


def _executed(stage: Stage, machine: str, request: dict[str, Any]) -> Any:
    """Return the execution of *machine* once it has ended; stop it if that takes too long."""
    machines = stage.client("stepfunctions")
    execution = machines.start_execution(stateMachineArn=machine, input=json.dumps(request))
    asked = {"executionArn": execution["executionArn"]}

    def ended() -> Any:
        found = machines.describe_execution(**asked)
        return None if found["status"] == "RUNNING" else found

    try:
        return until(ended, _EXPORT_S, "the execution ended", 10)
    except BaseException:
        machines.stop_execution(**asked)
        raise


@pytest.mark.timeout(_EXPORT_S)
def test_a_job_without_subnets_does_not_reach_the_feed(
    stage: Stage, jobs: Any, record_property: Record
) -> None:
    """The stage's own application has no subnets; if it needed none, pipelines would not."""
    plan = _plan(stage)
    seen = _probed(stage, jobs, plan["ApplicationId"], plan)
    record_property("reached", json.dumps(seen))
    assert seen["the feed"] != "yes"


@pytest.mark.timeout(2 * _EXPORT_S)
def test_a_job_in_subnets_with_a_way_out_reaches_the_feed(
    stage: Stage, jobs: Any, request: pytest.FixtureRequest, record_property: Record
) -> None:
    subnets, groups = (request.config.getoption(each) for each in ("subnet", "security_group"))
    if not subnets or not groups:
        pytest.skip("needs --subnet ID --subnet ID --security-group ID")
    plan = _plan(stage)
    own = jobs.get_application(applicationId=plan["ApplicationId"])["application"]
    application = jobs.create_application(
        name=stage.named("reach"),
        releaseLabel=own["releaseLabel"],
        type="SPARK",
        architecture="ARM64",
        maximumCapacity=_PROBE_CAPACITY,
        networkConfiguration={"subnetIds": subnets, "securityGroupIds": groups},
    )["applicationId"]

    def made() -> bool:
        state = jobs.get_application(applicationId=application)["application"]["state"]
        return bool(state in ("CREATED", "STARTED"))

    try:
        until(made, _JOB_S, "the application made", 5)
        seen = _probed(stage, jobs, application, plan)
    finally:
        end_applications(stage.name)
    record_property("reached", json.dumps(seen))
    assert seen["the feed"] == "yes"


def _machine(stage: Stage) -> Any:
    arn = syncs_of(stage.name, stage.client("cloudformation")).machine
    return stage.client("stepfunctions").describe_state_machine(stateMachineArn=arn)


def _plan(stage: Stage) -> Any:
    """Return the parameters that the machine starts its job with."""
    return json.loads(_machine(stage)["definition"])["States"]["Plan"]["Parameters"]


def _bucket(stage: Stage) -> str:
    return syncs_of(stage.name, stage.client("cloudformation")).bucket


def _probed(stage: Stage, jobs: Any, application: str, plan: Any) -> dict[str, str]:
    """Run the probe as a job; return whether it reached the feed, EventBridge and S3."""
    bucket, key = _bucket(stage), f"{workflow.UPLOADS}{_KIND}/{_PROBE.name}"
    stage.client("s3").put_object(Bucket=bucket, Key=key, Body=_PROBE.read_bytes())
    overrides = plan["ConfigurationOverrides"]["MonitoringConfiguration"]
    logs = str(overrides["S3MonitoringConfiguration"]["LogUri"])
    hosts = [f"{each}.{stage.region}.amazonaws.com" for each in ("events", "s3")]
    job = jobs.start_job_run(
        applicationId=application,
        executionRoleArn=plan["ExecutionRoleArn"],
        jobDriver={
            "sparkSubmit": {
                "entryPoint": f"s3://{bucket}/{key}",
                "entryPointArguments": [f"{stage.addresses.feed}/status", *hosts],
                "sparkSubmitParameters": _PROBE_SPARK,
            }
        },
        configurationOverrides={
            "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": logs}}
        },
    )["jobRunId"]

    def ended() -> Any:
        found = jobs.get_job_run(applicationId=application, jobRunId=job)["jobRun"]
        return found if found["state"] in _ENDED else None

    state = until(ended, _JOB_S, "the job ended", 10)
    assert state["state"] == "SUCCESS", state.get("stateDetails")
    return _printed(stage, f"{logs}applications/{application}/jobs/{job}/SPARK_DRIVER/stdout.gz")


def _printed(stage: Stage, log: str) -> dict[str, str]:
    """Return the probe's line out of the *log* of its job, once that is in the bucket."""
    bucket, _, key = log.removeprefix("s3://").partition("/")
    objects = stage.client("s3")

    def there() -> bool:
        return bool(objects.list_objects_v2(Bucket=bucket, Prefix=key).get("KeyCount", 0))

    until(there, _LOG_S, "the log of the job")
    printed = gzip.decompress(objects.get_object(Bucket=bucket, Key=key)["Body"].read())
    line = next(each for each in printed.decode().splitlines() if each.startswith('{"reached"'))
    seen: dict[str, str] = json.loads(line)["reached"]
    return seen
