"""The optional settings of a stage: each in a small template, the archive, and chained feeds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import aws_cdk as cdk
import cfnlint.api  # type: ignore[import-untyped]
import pytest
from aws_cdk import assertions

from infra import names, prices, settings, suppressions
from infra.builds import BUNDLE
from infra.data_stack import DataStack
from infra.parts.alarms import Alarms
from infra.parts.function import Layers, TidingsFunction
from infra.parts.logs import log_group
from infra.parts.tables import make_tables
from infra.settings import Producer, choose_stages
from infra.stack import NOTIFIED, Budget, guard
from tests.infra.templates import Resource, Template, app, synthesised, text
from tidings.aws.config import deployment
from tidings.aws.config.deployment import COORDINATION_ACTIONS
from tidings.aws.config.settings import METRICS_NAMESPACE, CoordinatorUrl, parse_coordinator
from tidings.aws.config.stages import ARCHIVE_OUTPUT, SOURCES_OUTPUT
from tidings.http.settings import WrongSetting
from tidings.lake import iceberg

pytestmark = pytest.mark.node
STAGE = settings.choose_stages("dev")[0]
EXPRESSION_MAX = 2048  # characters of an expression, as CloudWatch takes them


def _made(stage: settings.Stage, make: Callable[[cdk.Stack], object]) -> Template:
    made = app()
    stack = cdk.Stack(made, "Small")
    make(stack)
    body: dict[str, Any] = made.synth().get_stack_by_name("Small").template
    return Template(stage, body)


def test_restored_tables_have_names() -> None:
    """So that a deployment can import them; each of the blueprint, and no other."""
    stage = replace(STAGE, tables="2")
    template = _made(stage, lambda stack: make_tables(stack, "Tables", stage=stage, key=None))
    names = {each["TableName"] for each in template.resources("AWS::DynamoDB::Table").values()}
    assert names == {f"tidings-dev-{table.name}-2" for table in deployment.TABLES}
    tables = (e for e in template.body["Resources"].values() if e["Type"] == "AWS::DynamoDB::Table")
    # Else CloudFormation refuses to import them, also in a stage that keeps nothing.
    assert {each["DeletionPolicy"] for each in tables} == {"Retain"}
    usual = _made(STAGE, lambda stack: make_tables(stack, "Tables", stage=STAGE, key=None))
    assert not any("TableName" in each for each in usual.resources("AWS::DynamoDB::Table").values())


def test_alarms_are_mailed_to_who_is_named() -> None:
    """And to no address if none is named."""
    stage = replace(STAGE, alarm_mail=("a@example.org", "b@example.org"))
    template = _made(stage, lambda stack: Alarms(stack, "Alarms", stage=stage))
    mailed = template.resources("AWS::SNS::Subscription").values()
    assert {each["Endpoint"] for each in mailed} == set(stage.alarm_mail)
    assert not _made(STAGE, lambda stack: Alarms(stack, "Alarms", stage=STAGE)).resources(
        "AWS::SNS::Subscription"
    )


def test_a_bound_on_streams_is_one_on_nothing_else() -> None:
    """Lists, pages and rows are another function's, which streams that are held cannot stop."""
    stage = replace(STAGE, streams_max=400)
    streaming = [each for each in deployment.FUNCTIONS if each.streams]

    def make(stack: cdk.Stack) -> None:
        for each in streaming:
            TidingsFunction(stack, each.name, stage=stage, function=each, layers=[], environment={})

    made = _made(stage, make).resources("AWS::Lambda::Function").values()
    assert {each["FunctionName"]: each.get("ReservedConcurrentExecutions") for each in made} == {
        "tidings-dev-stream": 400,
        "tidings-dev-list": None,
    }


def test_xray_is_a_wish() -> None:
    """With it a function may send segments and nothing more; without it neither is there."""
    function = deployment.FUNCTIONS[0]

    def roles(xray: bool) -> tuple[object, set[tuple[str, str]]]:
        stage = replace(STAGE, xray=xray)
        given: dict[str, Any] = {"stage": stage, "function": function, "environment": {}}
        made = _made(stage, lambda stack: TidingsFunction(stack, "One", layers=[], **given))
        (role,) = made.resources("AWS::IAM::Role")
        (made_function,) = made.resources("AWS::Lambda::Function").values()
        return made_function.get("TracingConfig"), made.may(role)

    (mode, may), (usual_mode, usual) = roles(True), roles(False)
    assert (mode, usual_mode) == ({"Mode": "Active"}, None)
    assert may - usual == {("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")}


def test_every_alarm_names_its_runbook(template: Template) -> None:
    """The description, which the person on duty reads first, names it."""
    alarms = template.resources("AWS::CloudWatch::Alarm").values()
    said = {each.get("AlarmDescription", "") for each in alarms}
    known = {f"What to do: {names.PAGE}#{each}" for each in names.SECTIONS.values()}
    assert said
    assert said <= known


def test_spending_is_bounded_where_a_stage_says_so() -> None:
    """Units of each table in a second, and a budget that is mailed; nothing of it by default."""
    stage = replace(
        STAGE,
        reads_per_s_max=400,
        writes_per_s_max=200,
        budget_dollars=30,
        alarm_mail=("a@example.org",),
    )
    tables = _made(stage, lambda stack: make_tables(stack, "Tables", stage=stage, key=None))
    bounds = {"MaxReadRequestUnits": 400, "MaxWriteRequestUnits": 200}
    made = tables.resources("AWS::DynamoDB::Table").values()
    assert [each["OnDemandThroughput"] for each in made] == [bounds] * len(deployment.TABLES)
    usual = _made(STAGE, lambda stack: make_tables(stack, "Tables", stage=STAGE, key=None))
    assert not any("OnDemandThroughput" in str(each) for each in usual.body["Resources"].values())

    budget = _made(stage, lambda stack: Budget(stack, "Budget", stage=stage, dollars=30))
    (found,) = budget.resources("AWS::Budgets::Budget").values()
    assert found["Budget"]["BudgetLimit"] == {"Amount": 30, "Unit": "USD"}
    # A budget belongs to the account: that of another Region is another one.
    region = {"Ref": "AWS::Region"}
    assert text(found["Budget"]["BudgetName"]) == "tidings-dev-<AWS::Region>"
    assert found["Budget"]["CostFilters"] == {
        "TagKeyValue": ["user:tidings:stage$dev"],
        "Region": [region],
    }
    mailed = [each["Subscribers"] for each in found["NotificationsWithSubscribers"]]
    address = {"Address": "a@example.org", "SubscriptionType": "EMAIL"}
    assert mailed == [[address]] * len(NOTIFIED)


_BILLED = (
    *("AWS::DynamoDB::Table", "AWS::Lambda::Function", "AWS::Logs::LogGroup"),
    *("AWS::S3::Bucket", "AWS::KMS::Key", "AWS::ApiGatewayV2::Api"),
)


def test_everything_is_tagged_for_cost_allocation(template: Template) -> None:
    """By stage and component: all resources that are billed and can have tags."""
    for kind in _BILLED:
        for name, each in template.resources(kind).items():
            tags = each["Tags"]
            by_key = tags if isinstance(tags, dict) else {tag["Key"]: tag["Value"] for tag in tags}
            assert by_key["tidings:stage"] == template.stage.name, name
            assert by_key["tidings:component"], name
    components = {
        each["Value"]
        for function in template.resources("AWS::Lambda::Function").values()
        for each in function["Tags"]
        if each["Key"] == "tidings:component"
    }
    assert components >= {"Ingest", "FollowState", "Stream"}


def test_a_sandbox_leaves_nothing_behind() -> None:
    """Resources with data are deleted with their stack, are bounded, and have an end date."""
    (stage,) = settings.choose_stages("sandbox-ab12cd", "2026-11-25T12:00:00Z")
    made = app()
    stack = DataStack(made, stage)
    guard(stack, stage)
    body = made.synth().get_stack_by_name("tidings-sandbox-ab12cd-data").template
    kept = {each.get("DeletionPolicy", "Delete") for each in body["Resources"].values()}
    assert kept == {"Delete"}
    template = Template(stage, body)
    for table in template.resources("AWS::DynamoDB::Table").values():
        assert table["OnDemandThroughput"]["MaxWriteRequestUnits"] == settings.SANDBOX_WRITES
        assert {"Key": "tidings:expires", "Value": stage.expires} in table["Tags"]
    assert stage not in settings.STAGES


def test_functions_log_what_metrics_are_made_of(template: Template) -> None:
    """From INFO on, in every stage: below it boto3 writes what operations hold, above it Lambda
    drops the lines of metrics, and the alarms with them.
    """
    levels = {
        each["LoggingConfig"]["ApplicationLogLevel"]
        for each in template.resources("AWS::Lambda::Function").values()
        if each.get("FunctionName", "").startswith("tidings-")
    }
    assert levels == {"INFO"}
    with pytest.raises(TypeError, match="log_level"):
        settings.Stage(**asdict(STAGE) | {"log_level": "WARN"})


def test_the_dashboard_has_the_cost_of_a_million(template: Template) -> None:
    """Every table, function and API is in it, at the prices of the table; no term is too long."""
    if not template.stage.dashboard:
        return
    (board,) = template.resources("AWS::CloudWatch::Dashboard").values()
    body = text(board["DashboardBody"])
    assert f"list prices of {prices.DATE}" in body
    assert body.count("ConsumedWriteCapacityUnits") == len(deployment.TABLES)
    assert "1000000 * (FILL(SUM([write0,write1" in body
    start = body.index("1000000 * (")
    assert body.index("/ operations", start) - start < EXPRESSION_MAX
    assert METRICS_NAMESPACE in body


@pytest.mark.parametrize(
    "name",
    ["", "Ann", "ann_2", "-ann", "ann-", "a--b", "9to5", "a" * 33, "account", "prod-data", "data"],
)
def test_a_name_that_a_stage_cannot_have_is_refused(name: str) -> None:
    """CloudFormation would refuse it late, or deploy it over a stack of another stage."""
    with pytest.raises(settings.InvalidSetting, match=r"^name: must be "):
        replace(STAGE, name=name)


@pytest.mark.parametrize("name", ["prod-tokyo", "ann", "eu2-prod", "a" * 32])
def test_names_with_hyphens_and_digits_are_accepted(name: str) -> None:
    """Also for a stage with a lake: its database has underscores instead."""
    stage = replace(STAGE, name=name)
    assert all(len(names.prefix(stage) + each.name) <= 64 for each in deployment.FUNCTIONS)
    tables = f"{names.prefix(stage)}lake".replace("-", "_")
    found = f"Resource::arn:<AWS::Partition>:glue:<AWS::Region>:1:table/{tables}/*"
    accepted = [each.finding for each in suppressions.ACCEPTED if each.finding]
    assert any(re.fullmatch(each, found) for each in accepted)


@pytest.mark.parametrize("days", [30, 1, 3653])
def test_logs_are_kept_as_long_as_cloudwatch_can(days: int) -> None:
    stage = replace(STAGE, log_days=days)
    made = _made(stage, lambda stack: log_group(stack, "Logs", stage, path="/aws/lambda/x"))
    (group,) = made.resources("AWS::Logs::LogGroup").values()
    assert group["RetentionInDays"] == days
    with pytest.raises(settings.InvalidSetting, match="log_days: must be one of 1, 3, 5"):
        replace(STAGE, log_days=days + 1)


def test_a_function_and_a_pipeline_have_names_that_aws_takes() -> None:
    producer = Producer("a" * 40, "arn:aws:dynamodb:eu-west-1:1:table/t/stream/s", {})
    with pytest.raises(settings.InvalidSetting, match="at most 64 characters"):
        replace(STAGE, name="prod-tokyo", producers=(producer,))


def test_a_restore_replaces_other_tables() -> None:
    with pytest.raises(settings.InvalidSetting, match="must be different from the value of tables"):
        replace(STAGE, tables_before="")


def test_a_stage_that_is_not_listed_is_a_developers_own() -> None:
    """Without editing a file: one layer of libraries, and one asset that hotswap replaces."""
    (stage,) = settings.choose_stages("ann")
    assert stage == replace(STAGE, name="ann", hotswap=True)
    functions = [deployment.FUNCTIONS[0], *(f for f in deployment.FUNCTIONS if f.endless)]

    def make(stack: cdk.Stack) -> None:
        layers = Layers(stack, "Layers", stage).shared
        for each in functions:
            TidingsFunction(
                stack, each.name, stage=stage, function=each, layers=layers, environment={}
            )

    made = _made(stage, make)
    assert len(made.resources("AWS::Lambda::LayerVersion")) == 1
    first, last = made.resources("AWS::Lambda::Function").values()
    assert first["Code"] == last["Code"]
    for each in (first, last):
        path, _, _ = each["Handler"].rpartition("." if "." not in each["Handler"][-3:] else "/")
        place = path.replace(".", "/").removesuffix("/handler")
        assert (BUNDLE / place / "handler.py").is_file()
    assert last["Handler"] == "functions/stream/run.sh"
    assert (BUNDLE / last["Handler"]).stat().st_mode & 0o111
    assert last["Environment"]["Variables"]["PYTHONPATH"].startswith("/var/task/functions/stream:")
    assert (BUNDLE / "tidings" / "__init__.py").is_file()


def test_tables_are_copied_to_another_account() -> None:
    """All recoverable tables, once a day, into a vault that cannot be emptied before its time."""
    vault = "arn:aws:backup:eu-west-1:210987654321:backup-vault:tidings"
    prod = replace(settings.choose_stages("prod")[0], copies=settings.Copies(vault, lock_days=30))
    stack = DataStack(app(), prod)
    made = Template(prod, dict(assertions.Template.from_stack(stack).to_json()))
    (plan,) = made.resources("AWS::Backup::BackupPlan").values()
    (rule,) = plan["BackupPlan"]["BackupPlanRule"]
    assert [each["DestinationBackupVaultArn"] for each in rule["CopyActions"]] == [vault]
    assert rule["Lifecycle"] == rule["CopyActions"][0]["Lifecycle"] == {"DeleteAfterDays": 35}
    (selected,) = made.resources("AWS::Backup::BackupSelection").values()
    copied = {
        text(each)[len("<Tables") : -len("0123ABCD.Arn>")]
        for each in selected["BackupSelection"]["Resources"]
    }
    assert copied == {t.name.title() for t in deployment.TABLES if t.recoverable}
    (here,) = made.resources("AWS::Backup::BackupVault").values()
    assert here["LockConfiguration"] == {"MinRetentionDays": 30, "ChangeableForDays": 3}
    (key,) = made.resources("AWS::KMS::Key").values()
    assert "210987654321" in str(key["KeyPolicy"])
    findings = cfnlint.api.lint(json.dumps(made.body), config=None)
    assert [str(each) for each in findings if each.rule.id != "W3005"] == []


@pytest.mark.parametrize("lock_days", [0, 36])
def test_a_lock_is_no_longer_than_what_it_locks(lock_days: int) -> None:
    with pytest.raises(settings.InvalidSetting, match="lock_days"):
        settings.Copies("arn", lock_days=lock_days)


def test_copies_need_a_key_that_can_be_shared() -> None:
    stage = replace(STAGE, copies=settings.Copies("arn:aws:backup:eu-west-1:1:backup-vault:t"))
    with pytest.raises(settings.InvalidSetting, match="customer_key"):
        DataStack(app(), stage)


def bucket(template: Template) -> tuple[str, Resource]:
    name, _ = template.only("AWS::S3::Bucket", "Archive")
    return name, template.body["Resources"][name]


def test_its_parts_never_expire(template: Template) -> None:
    """They may become cheaper to keep; uploads that were broken off go."""
    rules = bucket(template)[1]["Properties"]["LifecycleConfiguration"]["Rules"]

    assert not any("Expiration" in name for rule in rules for name in rule)
    assert [rule["AbortIncompleteMultipartUpload"] for rule in rules] == [
        {"DaysAfterInitiation": 1}
    ]
    days = template.stage.archive_cold_days
    colder = [{"StorageClass": "GLACIER_IR", "TransitionInDays": days}] if days else None
    assert rules[0].get("Transitions") == colder


def test_it_is_kept_and_encrypted_as_the_tables_are(template: Template) -> None:
    """It contains the same data: under the stage's own key if it has one."""
    _, found = bucket(template)
    encryption = found["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    algorithm = encryption["ServerSideEncryptionByDefault"]["SSEAlgorithm"]

    assert found["DeletionPolicy"] == (
        "RetainExceptOnCreate" if template.stage.keep_data else "Delete"
    )
    assert algorithm == ("aws:kms" if template.stage.customer_key else "AES256")
    assert "VersioningConfiguration" not in found["Properties"]


def test_a_stage_may_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no bucket exists, no right on one, and no function has its address."""
    (dev,) = choose_stages("dev")
    monkeypatch.setattr(iceberg, "jar", None)  # `make synth STAGE=dev` downloads no jar
    made = synthesised(replace(dev, archive=False))

    assert not any(name.startswith("Archive") for name in made.resources("AWS::S3::Bucket"))
    assert ARCHIVE_OUTPUT not in made.body["Outputs"]
    assert "/archive/*" not in str(made.resources("AWS::IAM::Policy"))
    told = {
        each["Environment"]["Variables"]["TIDINGS_ARCHIVE"]
        for each in made.resources("AWS::Lambda::Function").values()
    }
    assert told == {""}


URL = "https://feed.example/feeds/main"
ELECTED: dict[str, object] = {"url": URL, "role": "elected", "address": URL}
ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/seats"
(DEV,) = settings.choose_stages("dev")


def made(**changes: Any) -> Template:
    return synthesised(replace(DEV, **changes))


@pytest.fixture(scope="module")
def leading() -> Template:
    """A stage that has the table, for another account too, and one address."""
    return made(
        sources={"main": ELECTED},
        seats=True,
        seat_accounts=("111122223333",),
        one_address=settings.OneAddress(),
    )


def environment_of(template: Template, function: str) -> dict[str, Any]:
    found: dict[str, Any] = template.function(function)[1]["Environment"]["Variables"]
    return found


def test_D1_every_function_is_told_of_the_sources(leading: Template) -> None:
    """The functions that post refuse; the relay copies."""
    for function in ("ingest", "stream", "follow-relay"):
        assert json.loads(text(environment_of(leading, function)["TIDINGS_SOURCES"])) == {
            "main": ELECTED
        }


def test_commands_are_told_which_feeds_are_copies(leading: Template) -> None:
    """And of what, so that a sync of one is refused before it is planned."""
    assert json.loads(leading.body["Outputs"][SOURCES_OUTPUT]["Value"]) == {"main": {"url": URL}}


def test_D39_leaders_are_elected_in_one_table(leading: Template) -> None:
    """Only the relay and the status may use it, and other accounts by its policy."""
    tables = leading.body["Resources"]
    (name,) = (each for each in tables if each.startswith("SeatsTable") and "Type" in tables[each])
    table = tables[name]["Properties"]
    assert (
        text(environment_of(leading, "follow-relay")["TIDINGS_COORDINATOR"])
        == f"dynamodb://<{name}>"
    )
    assert "SSESpecification" not in table or not table["SSESpecification"]["SSEEnabled"]
    (statement,) = table["ResourcePolicy"]["PolicyDocument"]["Statement"]
    assert "111122223333" in json.dumps(statement["Principal"])
    for function, may in (("follow-relay", True), ("supervise", True), ("ingest", False)):
        allowed = leading.statements(leading.role_of(function))
        assert any(name in text(each["Resource"]) for each in allowed) is may, function


def test_a_table_of_another_account_is_named_by_its_arn() -> None:
    """With its Region, in every Region of the stage."""
    template = made(sources={"main": ELECTED}, coordinator=ARN)
    url = environment_of(template, "follow-relay")["TIDINGS_COORDINATOR"]
    assert parse_coordinator(url) == CoordinatorUrl(ARN, "eu-west-1")
    allowed = template.statements(template.role_of("follow-relay"))
    assert [each["Action"] for each in allowed if each["Resource"] == ARN] == [
        sorted(COORDINATION_ACTIONS)
    ]


def test_D33_a_source_that_breaks_a_rule_is_not_deployed() -> None:
    """It is said when the template is made, not by each function when it starts."""
    with pytest.raises(WrongSetting, match="main: fall-off: is not known here"):
        made(sources={"main": {"url": URL, "fall-off": "wait"}})


def test_the_relay_may_wake_itself_and_the_followers(template: Template) -> None:
    """Its run ends before Lambda ends it; the sweep wakes it where that failed."""
    for function in ("follow-relay", "sweep", "supervise"):
        allowed = template.statements(template.role_of(function))
        woken = [text(each["Resource"]) for each in allowed if "Invoke" in text(each["Action"])]
        assert any("follow-relay" in each for each in woken), function
