"""Steps on EMR Serverless: a sync by the stage's own job, an export, and what a job reaches."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

from tidings.aws.config.stages import syncs_of
from tidings.core.sync import workflow

from infra.sandbox import leaving
from infra.sandbox.ground import Ground
from infra.sandbox.steps import CouldNot, Figures, NotSo
from infra.settings import SANDBOX_FEEDS

_FEED = SANDBOX_FEEDS[1]
_OBJECTS = 1000  # of the dump
_KIND = "sandbox"
_EXPORT_S = 2400  # ten minutes and more for a table of any size, and a job behind it
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


def sync(ground: Ground) -> Figures:
    """A dump is uploaded, compared by the job and applied; the next run would find nothing."""
    dump = ground.folder / "dump.json"
    lines = ({"type": _KIND, "id": f"{at}", "data": {"n": at}} for at in range(_OBJECTS))
    dump.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    asked = ("--stage", ground.stage, "--feed", _FEED, "--types", _KIND, "--cloud", "--json")
    began = time.monotonic()
    printed = ground.tidings("sync", str(dump), *asked)
    summary = json.loads(printed.splitlines()[-1])
    figures = {"seconds": round(time.monotonic() - began), **_billed(ground)}
    if summary.get("applied") != _OBJECTS:
        raise NotSo(f"{summary.get('applied')} of {_OBJECTS} objects were applied", figures)
    return {"objects": _OBJECTS, **figures}


def export(ground: Ground) -> Figures:
    """
    The stage's machine under its own role, which takes every state for a large one: DynamoDB
    exports the table into the bucket, and the job reads it there. A dry run.
    """
    machines, began = ground.client("stepfunctions"), time.monotonic()
    deployed = _machine(ground)
    definition = json.loads(deployed["definition"])
    (large,) = definition["States"]["Large"]["Choices"]
    large["NumericGreaterThan"] = -1
    made = machines.create_state_machine(
        name=ground.named("export"),
        definition=json.dumps(definition),
        roleArn=deployed["roleArn"],
    )["stateMachineArn"]
    try:
        ended = _executed(ground, made, _uploaded(ground))
    finally:
        machines.delete_state_machine(stateMachineArn=made)
    if ended["status"] != "SUCCEEDED":
        why = f"{ended.get('error', '')}: {ended.get('cause', '')}"
        raise NotSo(f"the execution is {ended['status']}: {why}")
    outcome = json.loads(ended["output"]).get("outcome", "unknown")
    return {"seconds": round(time.monotonic() - began), "outcome": str(outcome)}


def without_subnets(ground: Ground) -> Figures:
    """By the stage's own application, which has none."""
    run = _plan(ground)
    seen = _probed(ground, run["ApplicationId"], run)
    if seen["the feed"] == "yes":
        raise NotSo("a job without subnets reaches the feed: pipelines would need none", seen)
    return seen


def with_subnets(ground: Ground) -> Figures:
    """By an application of its own in the subnets that were named, which goes afterwards."""
    options, jobs = ground.options, ground.client("emr-serverless")
    if not options.subnets:
        raise CouldNot("no subnets with a way to the internet were named")
    application = jobs.create_application(
        name=ground.named("reach"),
        releaseLabel=_release(ground),
        type="SPARK",
        architecture="ARM64",
        maximumCapacity=_PROBE_CAPACITY,
        networkConfiguration={
            "subnetIds": list(options.subnets),
            "securityGroupIds": list(options.security_groups),
        },
    )["applicationId"]

    def made() -> bool:
        state = jobs.get_application(applicationId=application)["application"]["state"]
        return bool(state in ("CREATED", "STARTED"))

    try:
        ground.until(made, _JOB_S, "the application made", 5)
        seen = _probed(ground, application, _plan(ground))
    finally:
        leaving.end_applications(ground)
    if seen["the feed"] != "yes":
        raise NotSo(f"the feed is not reached from {', '.join(options.subnets)}", seen)
    return seen


def _machine(ground: Ground) -> Any:
    arn = syncs_of(ground.stage, ground.client("cloudformation")).machine
    return ground.client("stepfunctions").describe_state_machine(stateMachineArn=arn)


def _plan(ground: Ground) -> Any:
    """What the machine starts its job with."""
    return json.loads(_machine(ground)["definition"])["States"]["Plan"]["Parameters"]


def _release(ground: Ground) -> str:
    """That of the stage's own application."""
    asked = {"applicationId": _plan(ground)["ApplicationId"]}
    found = ground.client("emr-serverless").get_application(**asked)
    return str(found["application"]["releaseLabel"])


def _bucket(ground: Ground) -> str:
    return syncs_of(ground.stage, ground.client("cloudformation")).bucket


def _uploaded(ground: Ground) -> dict[str, Any]:
    """A request for a sync of a small dump, which is where a command would put it."""
    line = json.dumps({"type": _KIND, "id": "exported"})
    key = f"{workflow.UPLOADS}{_KIND}/dump.json"
    ground.client("s3").put_object(Bucket=_bucket(ground), Key=key, Body=f"{line}\n".encode())
    dump = f"s3://{_bucket(ground)}/{key}"
    return {"feed": _FEED, "dump": dump, "types": [_KIND], "deletes": False, "dry_run": True}


def _executed(ground: Ground, machine: str, request: dict[str, Any]) -> Any:
    machines = ground.client("stepfunctions")
    execution = machines.start_execution(stateMachineArn=machine, input=json.dumps(request))
    asked = {"executionArn": execution["executionArn"]}

    def ended() -> Any:
        found = machines.describe_execution(**asked)
        return None if found["status"] == "RUNNING" else found

    try:
        return ground.until(ended, _EXPORT_S, "the execution ended", 10)
    except BaseException:
        machines.stop_execution(**asked)
        raise


def _probed(ground: Ground, application: str, run: Any) -> dict[str, str]:
    """What the job told of the feed, of EventBridge and of S3."""
    bucket, jobs = _bucket(ground), ground.client("emr-serverless")
    key = f"{workflow.UPLOADS}{_KIND}/{_PROBE.name}"
    ground.client("s3").put_object(Bucket=bucket, Key=key, Body=_PROBE.read_bytes())
    overrides = run["ConfigurationOverrides"]["MonitoringConfiguration"]
    logs = str(overrides["S3MonitoringConfiguration"]["LogUri"])
    hosts = [f"{each}.{ground.place.region}.amazonaws.com" for each in ("events", "s3")]
    arguments = [f"{ground.addresses.feed}/status", *hosts]
    job = jobs.start_job_run(
        applicationId=application,
        executionRoleArn=run["ExecutionRoleArn"],
        jobDriver={
            "sparkSubmit": {
                "entryPoint": f"s3://{bucket}/{key}",
                "entryPointArguments": arguments,
                "sparkSubmitParameters": _PROBE_SPARK,
            }
        },
        configurationOverrides={
            "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": logs}}
        },
    )["jobRunId"]
    asked = {"applicationId": application, "jobRunId": job}

    def ended() -> Any:
        found = jobs.get_job_run(**asked)["jobRun"]
        return found if found["state"] in _ENDED else None

    state = ground.until(ended, _JOB_S, "the job ended", 10)
    if state["state"] != "SUCCESS":
        raise NotSo(f"the job is {state['state']}: {state.get('stateDetails', '')}")
    return _told(ground, f"{logs}applications/{application}/jobs/{job}/SPARK_DRIVER/stdout.gz")


def _told(ground: Ground, printed_at: str) -> dict[str, str]:
    bucket, _, below = printed_at.removeprefix("s3://").partition("/")
    objects = ground.client("s3")

    def there() -> bool:
        found = objects.list_objects_v2(Bucket=bucket, Prefix=below)
        return bool(found.get("KeyCount", 0))

    ground.until(there, _LOG_S, "the log of the job")
    printed = gzip.decompress(objects.get_object(Bucket=bucket, Key=below)["Body"].read())
    line = next(each for each in printed.decode().splitlines() if each.startswith('{"reached"'))
    seen: dict[str, str] = json.loads(line)["reached"]
    return seen


def _billed(ground: Ground) -> dict[str, str | int | float]:
    """vCPU- and GB-hours of the job that ended last."""
    jobs, application = ground.client("emr-serverless"), _plan(ground)["ApplicationId"]
    runs = jobs.list_job_runs(applicationId=application)["jobRuns"]
    if not runs:
        return {}
    last = max(runs, key=lambda each: each["createdAt"])["id"]
    found = jobs.get_job_run(applicationId=application, jobRunId=last)["jobRun"]
    billed = found.get("billedResourceUtilization", {})
    return {
        "vCPU hours": round(billed.get("vCPUHour", 0.0), 3),
        "GB hours": round(billed.get("memoryGBHour", 0.0), 3),
    }
