"""A table that produces: one function, one mapping, and no right more than they need."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import aws_cdk as cdk
import cdk_nag
import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk.assertions import Annotations, Match
from aws_cdk.assertions import Template as Synthesised

from infra import ROOT
from infra.data_stack import DataStack
from infra.parts.table_producer import TableProducer, reach_of
from infra.settings import STAGES, Producer
from tests.infra.templates import Template, app, synthesised, text
from tidings.aws.config import deployment, settings
from tidings.core.attention import RULES
from tidings.core.errors import Rejected
from tidings.core.ingest.table_capture import Capture, parse

pytestmark = pytest.mark.node

STREAM = "arn:aws:dynamodb:eu-west-1:123456789012:table/videos/stream/2026-01-01T00:00:00.000"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1"
CAPTURE: dict[str, object] = {"type": "video", "id": "{{id}}", "parents": ["user/{{owner}}"]}
VIDEOS = Producer("videos", STREAM, CAPTURE, KEY)
STAGE = next(stage for stage in STAGES if stage.customer_key)


def videos(stack: cdk.Stack) -> dynamodb.Table:
    """Return a table with a stream."""
    return dynamodb.Table(
        stack,
        "Table",
        partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
        stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
    )


class Owner(cdk.Stack):
    """A stack of another owner, with a table and the resources that capture it."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Owner")
        table = videos(self)
        self.producer = TableProducer(
            self,
            "Feed",
            stage=STAGE,
            producer=replace(VIDEOS, stream_arn=table.table_stream_arn or ""),
            reach=reach_of(self, STAGE),
        )


@pytest.fixture(scope="module")
def owner() -> Owner:
    stack = Owner(app())
    cdk.Aspects.of(stack).add(cdk_nag.AwsSolutionsChecks())
    return stack


@pytest.fixture(scope="module")
def theirs(owner: Owner) -> Template:
    return Template(STAGE, dict(Synthesised.from_stack(owner).to_json()))


@pytest.fixture(scope="module")
def ours() -> Template:
    """The stage itself, with a table named in its settings."""
    return synthesised(replace(STAGE, producers=(VIDEOS,)))


@pytest.fixture(params=["theirs", "ours"])
def template(request: pytest.FixtureRequest) -> Template:
    """By its owner's app, and by the stage's settings."""
    found: Template = request.getfixturevalue(request.param)
    return found


def mapping(template: Template) -> dict[str, Any]:
    name = template.live("capture-videos")
    (found,) = (
        each
        for each in template.resources("AWS::Lambda::EventSourceMapping").values()
        if each["FunctionName"] == {"Ref": name}
    )
    return found


def test_the_function_is_told_what_writes_mean(template: Template) -> None:
    """Its settings parse, in the stage's words, and the capture is the owner's."""
    variables = template.function("capture-videos")[1]["Environment"]["Variables"]
    found = settings.Settings.read({name: text(value) for name, value in variables.items()})

    assert parse(found.capture) == Capture("main", "video", "{{id}}", ("user/{{owner}}",))
    assert (found.stage, found.open) == (STAGE.name, False)
    assert len({found.log_table, found.control_table, found.outbox_table}) == 3


def test_it_may_read_one_stream_and_append(template: Template) -> None:
    """The tables of the stage as granted, one stream, one bucket to put to, two keys, its log."""
    allowed = template.may(template.role_of("capture-videos"))
    tables = {action for grant in deployment.CAPTURE.grants for action in grant.actions}
    stream = {f"dynamodb:{each}" for each in ("DescribeStream", "GetRecords", "GetShardIterator")}

    assert {a for a, _ in allowed if a.startswith("dynamodb:")} == (
        tables | stream | {"dynamodb:ListStreams"}
    )
    assert {a for a, _ in allowed if a.startswith("s3:")} == {"s3:ListBucket", "s3:PutObject"}
    assert {a for a, r in allowed if r == KEY} == {"kms:Decrypt"}
    assert not any(r == "*" for _, r in allowed)
    arn = text(mapping(template)["EventSourceArn"])
    assert {r for a, r in allowed if a in stream} == {arn}


def test_what_goes_wrong_is_told(template: Template) -> None:
    """Late or lost records alarm the stage's topic; what else fails is counted with the stage's."""
    told = {
        each["MetricName"]: text(each["AlarmActions"][0])
        for name, each in template.resources("AWS::CloudWatch::Alarm").items()
        if "Feed" in name or "ProducerVideos" in name
    }

    assert told.keys() == {
        *("IteratorAge", "DroppedEventCount", "OnFailureDestinationDeliveredEventCount")
    }
    assert len(set(told.values())) == 1
    assert mapping(template)["MetricsConfig"]["Metrics"] == ["EventCount"]
    (filters,) = (
        each["MetricTransformations"]
        for name, each in template.resources("AWS::Logs::MetricFilter").items()
        if "Feed" in name or "ProducerVideos" in name
    )
    assert filters[0]["MetricNamespace"] == f"Tidings/{STAGE.name}"
    assert "WritesRefused" in RULES


def test_an_owner_reads_what_the_stage_publishes(owner: Owner, theirs: Template) -> None:
    """Names and ARNs that a restore changes are parameters: no other stack depends on them; the
    topic, which nothing changes, is imported.
    """
    published = Synthesised.from_stack(DataStack(app(), STAGE)).to_json()["Resources"].values()
    written = {e["Properties"]["Name"] for e in published if e["Type"] == "AWS::SSM::Parameter"}
    read = {
        each["Default"]
        for each in theirs.body["Parameters"].values()
        if each["Default"].startswith("/tidings/")
    }
    names = ("log-table", "control-table", "outbox-table", "key")
    assert read == {f"/tidings/{STAGE.name}/{each}" for each in names} <= written
    found = json.dumps(theirs.body)
    imported = {"Fn::ImportValue": f"tidings-{STAGE.name}-AlarmsTopic"}
    assert found.count("Fn::ImportValue") == found.count(json.dumps(imported)) > 0


def test_an_owner_has_nothing_to_explain(owner: Owner) -> None:
    """cdk-nag finds nothing in the resources that are added to their stack."""
    found = Annotations.from_stack(owner).find_error("*", Match.string_like_regexp("AwsSol.*"))

    assert [each.entry.data for each in found] == []


def test_a_mistake_is_seen_before_it_is_deployed() -> None:
    """The sentence names the field."""
    for change, sentence in (
        ({"id": "fixed"}, "id: needs the attributes of the key"),
        ({"feed": "films"}, "feed: no such feed here"),
    ):
        stack = cdk.Stack(app(), "Theirs")
        broken = replace(VIDEOS, capture=CAPTURE | change)
        with pytest.raises(Rejected, match=sentence):
            reach = reach_of(stack, STAGE)
            TableProducer(stack, "Feed", stage=STAGE, producer=broken, reach=reach)


def test_the_python_of_the_page() -> None:
    """What docs/guides/CAPTURES.md says to an owner is enough."""
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs/guides/CAPTURES.md").read_text(), re.M | re.S
    )
    stack = cdk.Stack(app(), "Theirs")
    exec(blocks[-1], {"stack": stack, "table": videos(stack)})

    Synthesised.from_stack(stack).has_resource_properties(
        "AWS::Lambda::Function", {"FunctionName": "tidings-prod-capture-videos"}
    )
