"""What keeps a stage safe, cheap and observed: tables, logs, alarms, and the costs when idle."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

import pytest

from bench import bill, costs_page
from infra import names
from infra.parts import logs
from infra.parts.logs import HTTP_FIELDS, SOCKET_FIELDS
from tests.infra.templates import Resource, Template, text
from tidings.aws.config import deployment, settings
from tidings.core.attention import RULES
from tidings.core.metrics import METRICS

pytestmark = pytest.mark.node


def test_tables_are_encrypted_recoverable_and_expire(template: Template) -> None:
    """On demand, with TTL, under the key the stage chose; with point-in-time recovery, but for the
    one that is of no use at another moment.
    """
    for name, table in template.resources("AWS::DynamoDB::Table").items():
        assert table["BillingMode"] == "PAY_PER_REQUEST"
        recovery = table["PointInTimeRecoverySpecification"]
        assert recovery["PointInTimeRecoveryEnabled"] != name.startswith("TablesConnections")
        assert table["TimeToLiveSpecification"]["Enabled"]
        # Without a key of the stage, AWS's own key encrypts the table, and its use is free.
        key = table.get("SSESpecification", {"SSEEnabled": False})
        assert (template.stage.customer_key,) * 2 == (key["SSEEnabled"], "KMSMasterKeyId" in key)


def test_data_outlives_its_stack_where_it_must(template: Template) -> None:
    """A stage that keeps its data refuses to delete tables and retains them."""
    for each in template.body["Resources"].values():
        if each["Type"] == "AWS::DynamoDB::Table":
            assert template.stage.keep_data == each["Properties"]["DeletionProtectionEnabled"]
            assert ("Retain" if template.stage.keep_data else "Delete") == each["DeletionPolicy"]


def test_a_first_deploy_that_fails_leaves_no_name_behind(template: Template) -> None:
    """Retained resources are deleted if the deploy that created them is rolled back, or the next
    one finds them. The exceptions have generated names: protected tables and resources of other
    APIs.
    """
    kept = {
        name: each
        for name, each in template.body["Resources"].items()
        if each.get("DeletionPolicy", "Delete") != "Delete"
    }
    for name, each in kept.items():
        if each["DeletionPolicy"] != "RetainExceptOnCreate":
            assert each["DeletionPolicy"] == "Retain"
            assert name.startswith("GatewayLogging") or each["Type"] == "AWS::DynamoDB::Table"
            assert not any(told.endswith("Name") for told in each["Properties"]), name
    kinds = {each["Type"] for each in kept.values()}
    held = {"AWS::DynamoDB::Table", "AWS::KMS::Key", "AWS::Logs::LogGroup", "AWS::S3::Bucket"}
    assert template.stage.keep_data == (held <= kinds)


def test_buckets_are_emptied_after_a_while(template: Template) -> None:
    """cdk-nag checks that they are private (S2) and accept TLS only (S10)."""
    for bucket in template.resources("AWS::S3::Bucket").values():
        assert bucket["BucketEncryption"] and bucket["LifecycleConfiguration"]


def test_both_apis_are_throttled_and_logged(template: Template) -> None:
    """A runaway client is refused before it costs; every request leaves a line."""
    stages = template.resources("AWS::ApiGatewayV2::Stage").values()

    assert len(stages) == 2
    for stage in stages:
        limits = stage["DefaultRouteSettings"]
        assert template.stage.requests_per_s == limits["ThrottlingRateLimit"]
        assert template.stage.burst == limits["ThrottlingBurstLimit"]
        assert "$context.requestId" in stage["AccessLogSettings"]["Format"]


def test_access_logs_join_the_lines_of_functions(template: Template) -> None:
    """By the id of the function's call, or by the connection (RUNBOOKS.md, *A key leaked*)."""
    stages = template.resources("AWS::ApiGatewayV2::Stage").values()
    lines = [json.loads(stage["AccessLogSettings"]["Format"]) for stage in stages]
    joins = {each.get("integration_requestId") or each["connectionId"] for each in lines}
    assert joins == {"$context.integration.requestId", "$context.connectionId"}


def test_access_logs_hold_nothing_of_the_clients(template: Template) -> None:
    """No addresses, no headers, no query: cursors and filters are the consumers' business."""
    for stage in template.resources("AWS::ApiGatewayV2::Stage").values():
        line = stage["AccessLogSettings"]["Format"]

        assert not any(word in line for word in ("sourceIp", "userAgent", "header", "query"))
        # API Gateway's own log of requests would hold the passwords.
        assert not stage["DefaultRouteSettings"].get("DataTraceEnabled", False)


def test_what_fails_is_counted_wherever_it_is_logged(template: Template) -> None:
    """In one metric of the stage: functions, both APIs and machines, and nothing else."""
    filters = template.resources("AWS::Logs::MetricFilter").values()
    found = {text(each["LogGroupName"]): each for each in filters}
    functions = {
        f"<{each['LoggingConfig']['LogGroup']['Ref']}>"
        for each in template.resources("AWS::Lambda::Function").values()
    }
    others = {name for name in found if name not in functions}

    assert functions <= found.keys()
    kinds = {name: found[name]["FilterPattern"] for name in others}
    assert sorted(kinds.values()) == sorted([logs.API] * 2 + [logs.MACHINE] * (len(others) - 2))
    assert len(others) == 2 + len(template.resources("AWS::StepFunctions::StateMachine"))
    assert {found[name]["FilterPattern"] for name in functions} == {logs.FUNCTION}
    for each in found.values():
        (made,) = each["MetricTransformations"]
        assert "Dimensions" not in made and "DefaultValue" not in made  # a zero would be billed
        assert (made["MetricName"], made["MetricValue"]) == ("Failures", "1")
        assert made["MetricNamespace"] == f"Tidings/{template.stage.name}"
    (alarm,) = _alarms(template, "Failures")
    assert (alarm["Namespace"], alarm["Threshold"]) == (f"Tidings/{template.stage.name}", 0)


def test_a_schedule_that_does_not_run_raises_an_alarm(template: Template) -> None:
    """Silence is the only sign of it, so missing data is one."""
    dead = {text(each["Dimensions"][0]["Value"]): each for each in _alarms(template, "Invocations")}

    assert dead.keys() == {f"<{template.function(s.function)[0]}>" for s in deployment.SCHEDULES}
    for each in dead.values():
        assert (each["ComparisonOperator"], each["Threshold"]) == ("LessThanThreshold", 1)
        assert each["TreatMissingData"] == "breaching"


def test_whatever_the_core_finds_has_an_alarm(template: Template) -> None:
    """At once, or after a while; each rule of the core counts in one of the two."""
    (now,), (later,) = _alarms(template, "Attention"), _alarms(template, "Behind")
    for each in (now, later):
        assert (each["ComparisonOperator"], each["Threshold"]) == ("GreaterThanThreshold", 0)
        assert (each["Statistic"], each["Period"]) == ("Sum", 300)
        assert each["TreatMissingData"] == "notBreaching"
    assert (now["EvaluationPeriods"], later["EvaluationPeriods"]) == (1, 3)
    known = {metric.name for metric in METRICS}
    assert RULES.keys() <= known and {"Attention", "Behind"} == settings.METRICS_FOR_ALARMS <= known


def test_alarms_of_ours_name_metrics_that_exist(template: Template) -> None:
    """An alarm on a metric that is never emitted would be silent for ever."""
    known = {metric.name for metric in METRICS}
    for alarm in template.resources("AWS::CloudWatch::Alarm").values():
        if alarm.get("Namespace") == settings.METRICS_NAMESPACE:
            assert alarm["MetricName"] in known
            assert alarm["Dimensions"] == [
                {"Name": "service", "Value": settings.metrics_service(template.stage.name)}
            ]


def test_alarms_reach_the_topic(template: Template) -> None:
    """Each has an action; CloudWatch may publish, and use the key if the stage has one."""
    topic = template.body["Outputs"]["AlarmsTopic"]["Value"]["Ref"]
    (policy,) = (
        each
        for each in template.resources("AWS::SNS::TopicPolicy").values()
        if each["Topics"] == [{"Ref": topic}]
    )
    allowed = [s for s in policy["PolicyDocument"]["Statement"] if s["Effect"] == "Allow"]

    for alarm in template.resources("AWS::CloudWatch::Alarm").values():
        assert [f"<{topic}>"] == [text(action) for action in alarm["AlarmActions"]]
    assert allowed[0]["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    for key in template.resources("AWS::KMS::Key").values():
        assert "cloudwatch.amazonaws.com" in str(key["KeyPolicy"])


def _alarms(template: Template, metric: str) -> list[Resource]:
    """Return the alarms of *metric*."""
    found = template.resources("AWS::CloudWatch::Alarm").values()
    return [each for each in found if each["MetricName"] == metric]


def test_streams_that_fail_raise_an_alarm_and_leave_room_for_posts(template: Template) -> None:
    """No access log has the responses of a URL; each reader uses one of the account's 1,000."""
    _, alarm = template.only("AWS::CloudWatch::Alarm", "AlarmsStreamUrl5xxCount")
    name, stream = template.function("stream")
    assert alarm["MetricName"] == "Url5xxCount"
    assert alarm["Dimensions"] == [{"Name": "FunctionName", "Value": {"Ref": name}}]
    bound = stream.get("ReservedConcurrentExecutions")
    assert bound == {"dev": None, "staging": 50, "prod": 400}[template.stage.name]


def test_logs_of_the_apis_need_no_statement_each(template: Template) -> None:
    """The resource policy of an account's logs has 5,120 characters, and one for this prefix."""
    groups = template.resources("AWS::Logs::LogGroup").values()
    gateways = {each["LogGroupName"] for each in groups if "apigateway" in each["LogGroupName"]}
    called = f"/aws/vendedlogs/apigateway/tidings-{template.stage.name}"
    assert gateways == {f"{called}-http", f"{called}-sockets"}


_TERM = re.compile(r'^\$\.([\w.]+) (=|!=) "([^"]*)"$')


def finds(pattern: str, line: dict[str, Any]) -> bool:
    """Match like CloudWatch's JSON patterns with these operators: absent fields match nothing."""
    inner = pattern.removeprefix("{ ").removesuffix(" }")
    return any(
        all(_holds(term, line) for term in either.split(" && ")) for either in inner.split(" || ")
    )


def _holds(term: str, line: dict[str, Any]) -> bool:
    match = _TERM.fullmatch(term)
    assert match is not None, term
    value: Any = line
    for name in match[1].split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None:
        return False
    return fnmatchcase(value, match[3]) == (match[2] == "=")


def report(status: str) -> dict[str, Any]:
    metrics = {"durationMs": 101.51, "billedDurationMs": 102, "memorySizeMB": 512}
    record = {"requestId": "6f7f0961", "metrics": metrics, "status": status}
    return {"time": "2026-02-20T12:31:32.123Z", "type": "platform.report", "record": record}


@pytest.mark.parametrize("status", ["error", "failure", "timeout"])
def test_a_call_that_failed_is_counted_once(status: str) -> None:
    """By its report alone, although its start, its end and our own line are there, too."""
    done = {"type": "platform.runtimeDone", "record": {"status": status}}
    ours = {"level": "ERROR", "message": "the function failed", "service": "tidings-dev"}
    start: dict[str, Any] = {"type": "platform.start", "record": {}}
    lines = [start, ours, done, report(status)]
    assert [finds(logs.FUNCTION, each) for each in lines] == [False, False, False, True]


def test_a_call_that_ended_well_is_none() -> None:
    """Nor a warning of ours, nor a line of metrics."""
    warning = {"level": "WARNING", "message": "follower stopped", "reason": "not now"}
    metrics: dict[str, Any] = {"_aws": {"Timestamp": 1}, "FramesSent": [2]}
    for line in (report("success"), warning, metrics):
        assert not finds(logs.FUNCTION, line)


@pytest.mark.parametrize("fields", [HTTP_FIELDS, SOCKET_FIELDS], ids=["http", "sockets"])
@pytest.mark.parametrize(("status", "counts"), [("200", 0), ("404", 0), ("500", 1), ("503", 1)])
def test_an_answer_of_5xx_is_one(fields: tuple[str, ...], status: str, counts: int) -> None:
    """By the line that an API writes of each request."""
    line = json.loads(json.dumps(dict.fromkeys(fields, "-") | {"status": status}))
    assert finds(logs.API, line) == bool(counts)


def test_an_execution_that_failed_or_did_not_end_is_one() -> None:
    """Not one that was stopped, nor a step that failed and was caught."""
    found = {"ExecutionFailed", "ExecutionTimedOut"}
    others = {"ExecutionStarted", "ExecutionSucceeded", "ExecutionAborted", "TaskFailed"}
    for kind in found | others:
        assert finds(logs.MACHINE, {"type": kind, "id": "1"}) == (kind in found)


AT_MOST = {"dev": 1.0, "staging": 6.0, "prod": 6.0}  # dollars a month; a key is one of them


def _idle_resources(template: Template) -> bill.FixedCosts:
    return bill.of_template(template.body["Resources"], names.prefix(template.stage))


@pytest.mark.node
def test_an_idle_stage_costs_next_to_nothing(template: Template) -> None:
    """Alarms, dashboards, keys, what its schedules run and read, and what that writes."""
    measured = costs_page.kept()
    found = {**measured["standing"], template.stage.name: asdict(_idle_resources(template))}
    lines = bill.idle(template.stage.name, {**measured, "standing": found})

    assert bill.total(lines) < AT_MOST[template.stage.name]
    assert {"alarms", "sweep: calls", "sweep: reads"} <= {each.what for each in lines}


@pytest.mark.node
def test_the_page_is_of_these_templates(template: Template) -> None:
    """`bench/costs.json` says what COSTS.md was made of."""
    assert costs_page.kept()["standing"][template.stage.name] == asdict(_idle_resources(template))
