"""`tidings doctor`: what of an account would fail the first deploy of a stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from click.testing import CliRunner, Result

from tests.contract.answering import Answer, Answering, answering
from tests.unit.admin.cloudformation import stage
from tidings.admin import doctor_command
from tidings.admin.doctor_command import Verdict
from tidings.aws.config.stages import BOOTSTRAP, Concurrency
from tidings.client.cli.main import main

LOG_GROUP = "/aws/lambda/tidings-prod-ingest"
OTHERS = "/aws/lambda/tidings-production-ingest"


def _lambda(quota: int, unreserved: int, *functions: str) -> tuple[Answer, Answer]:
    """Return Lambda's answers to both requests, in their order."""
    limits = {"ConcurrentExecutions": quota, "UnreservedConcurrentExecutions": unreserved}
    listed = [{"FunctionName": name} for name in functions]
    return Answer(body={"Functions": listed}), Answer(body={"AccountLimit": limits})


@pytest.fixture(params=[("tidings-dev", "tidings-dev-data")])
def account(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Answering]:
    """Bootstrapped, with the stage `dev` deployed; `script` is what its Lambda answers."""
    name, *others = request.param
    with (
        stage(monkeypatch, {}, name, *others),
        answering(*_lambda(1000, 1000)) as server,
        answering(Answer()) as gateway,  # no role yet
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL_LAMBDA", server.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_API_GATEWAY", gateway.url)
        boto3.client("ssm").put_parameter(Name=BOOTSTRAP, Value="28", Type="String")
        yield server


def _run(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words])


def _printed(result: Result) -> dict[str, dict[str, Any]]:
    return {found["check"]: found for found in map(json.loads, result.stdout.splitlines())}


def test_a_deploy_that_would_go_through(account: Answering) -> None:
    """This holds for a new stage, and for an existing one that owns the names."""
    account.script = [*_lambda(1000, 1000), *_lambda(1000, 1000, "tidings-dev-ingest")]
    set_aside = ("--streams-max", "400", "--json")
    new, there = _run("--stage", "prod", *set_aside), _run("--stage", "dev", *set_aside)

    assert (new.exit_code, there.exit_code) == (0, 0)
    assert {found["verdict"] for found in _printed(new).values()} == {"ok"}
    assert _printed(there)["functions"]["says"] == "1, of the stage itself"
    assert _printed(there)["stack"]["says"] == "UPDATE_COMPLETE: a deploy updates it"


@pytest.mark.parametrize("account", [("tidings-dev",)], indirect=True)
def test_a_stage_without_its_data_stack_fails(account: Answering) -> None:
    """A deploy would create empty tables for functions that have others."""
    result = _run("--stage", "dev", "--json")
    found = _printed(result)

    assert result.exit_code == 3
    assert [check for check, each in found.items() if each["verdict"] == "fails"] == ["data"]
    assert found["data"]["says"] == "tidings-dev is deployed and tidings-dev-data is missing"


def test_what_would_fail_a_first_deploy(account: Answering) -> None:
    """Names of one that was rolled back, and more set aside than a new account has."""
    logs = boto3.client("logs")
    for name in (LOG_GROUP, OTHERS):
        logs.create_log_group(logGroupName=name)
    boto3.client("ssm").delete_parameter(Name=BOOTSTRAP)
    account.script = [*_lambda(10, 10, "tidings-prod-sweep", "another")]
    result = _run("--stage", "prod", "--streams-max", "400", "--json")
    found = _printed(result)

    assert result.exit_code == 3
    assert {check for check, each in found.items() if each["verdict"] == "fails"} == {
        *("bootstrap", "concurrency", "functions", "log-groups")
    }
    assert found["functions"]["says"].startswith("already existing: tidings-prod-sweep;")
    assert LOG_GROUP in found["log-groups"]["says"]
    assert OTHERS not in found["log-groups"]["says"]
    assert found["concurrency"]["says"].endswith("400 more would leave -390, and Lambda keeps 100")
    assert found["bootstrap"]["do"] == "run cdk bootstrap with these credentials"


def test_what_may_not_be_asked_is_said(account: Answering) -> None:
    """AWS's error is shown; the other checks run, and the exit code is 1."""
    account.script = [Answer(403, {"message": "not authorized"}, "AccessDeniedException")]
    result = _run("--stage", "prod")

    assert result.exit_code == 1
    assert result.stdout.count("unknown") == 2
    assert "unknown  concurrency: not checked: An error occurred (AccessDen" in result.stdout
    assert "ok       bootstrap: version 28\n" in result.stdout


def test_tables_and_buckets_left_behind_are_in_nobodys_way(account: Answering) -> None:
    """AWS generated their names, so they do not conflict; they may hold data to be recovered."""
    boto3.client("s3").create_bucket(
        Bucket="tidings-prod-archivebucket-x1",
        CreateBucketConfiguration={"LocationConstraint": "eu-west-1"},
    )
    account.script = [*_lambda(1000, 1000)]
    result = _run("--stage", "prod", "--json")

    assert result.exit_code == 0
    assert _printed(result)["buckets"]["verdict"] == "note"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (None, Verdict.OK),
        ("ROLLBACK_COMPLETE", Verdict.OK),
        ("UPDATE_IN_PROGRESS", Verdict.FAILS),
        ("UPDATE_ROLLBACK_FAILED", Verdict.FAILS),
    ],
)
def test_stacks(status: str | None, verdict: Verdict) -> None:
    """A stack that is missing or was rolled back is created; one that is stuck is not touched."""
    assert doctor_command.check_stack(status).verdict is verdict


def test_a_small_quota_is_noted() -> None:
    """No concurrency is reserved, so a deploy succeeds; but ten readers would use all of it."""
    found = doctor_command.check_concurrency(Concurrency(10, 0), 0, deployed=False)
    assert found.verdict is Verdict.NOTE
    assert (
        doctor_command.check_concurrency(Concurrency(1000, 400), 400, deployed=True).verdict
        is Verdict.OK
    )


def test_streams_that_nothing_bounds_are_noted() -> None:
    """A deploy succeeds, but readers could use the concurrency that posts, lists and relays
    need."""
    found = doctor_command.check_concurrency(Concurrency(1000, 300), 0, deployed=True)
    assert found.verdict is Verdict.NOTE
    assert "at most 600" in found.do


def test_roles_and_long_lists() -> None:
    """The account's logging role is replaced by a first deploy; many names are counted."""
    assert doctor_command.check_gateway_role("arn:x", deployed=False).verdict is Verdict.NOTE
    assert doctor_command.check_gateway_role("arn:x", deployed=True).verdict is Verdict.OK
    many = [f"tidings-prod-{number}" for number in range(7)]
    assert "-4 and 2 more" in doctor_command.check_names(many, deployed=False).says


@pytest.mark.parametrize(
    ("region", "verdict"),
    [
        ("eu-west-1", Verdict.OK),
        ("eu-central-2", Verdict.FAILS),  # no function URLs
        ("us-gov-west-1", Verdict.FAILS),
        ("cn-north-1", Verdict.FAILS),
        (None, Verdict.FAILS),
    ],
)
def test_a_region_without_function_urls_is_refused(region: str | None, verdict: Verdict) -> None:
    assert doctor_command.check_region(region).verdict is verdict


def test_settings_that_no_account_takes_are_told_without_asking_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name, the Region and the retention of logs are checked without a request to AWS."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "il-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    result = _run("--stage", "prod-data", "--log-days", "31", "--json")
    assert result.exit_code == 3
    assert {name: each["verdict"] for name, each in _printed(result).items()} == {
        "name": "fails",
        "region": "fails",
        "log-days": "fails",
    }
    assert "30" in _printed(result)["log-days"]["do"]


def test_the_region_is_that_of_the_other_tools_of_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_REGION applies, which boto3 alone does not read."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_REGION", "eu-central-2")
    result = CliRunner().invoke(main, ["doctor", "--stage", "dev"])
    assert result.exit_code == 3
    assert "eu-central-2 has no function URLs" in result.output
