"""The dev stage in LocalStack, made from its template one resource at a time.

Not by CloudFormation: what LocalStack does not know counts as created there. Each resource is made
when another one first names it, so that the order is that of the references. A resource of
another type than the ones below (roles, log groups, the gateways) is a name and nothing else; the
application of EMR Serverless is a queue of jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3

from infra.names import STREAM_HANDLER
from tests.localstack import jobs
from tests.localstack.template import Template, resolved
from tidings.aws.config.settings import LIVE

ACCOUNT, REGION = "000000000000", "us-east-1"
STAGE = "dev"
# Set for every function: tests use no password, and those of dumps need a feed of their own.
ENVIRONMENT = {"TIDINGS_OPEN": "true", "TIDINGS_FEEDS": "main,synced"}

_PSEUDO = {
    "AWS::AccountId": ACCOUNT,
    "AWS::Region": REGION,
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::StackName": f"tidings-{STAGE}",
}
Properties = dict[str, Any]


@dataclass(frozen=True)
class Made:
    """The reference to a resource, and its attributes."""

    name: str
    attributes: dict[str, str]


class Stage:
    """`make` first, then ask for names. Clients are those of the environment."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self._made: dict[str, Made] = {}
        self._makers: dict[str, Callable[[str, Properties], Made]] = {
            "AWS::DynamoDB::Table": self._table,
            "AWS::S3::Bucket": self._bucket,
            "AWS::SNS::Topic": self._topic,
            "AWS::Lambda::LayerVersion": self._layer,
            "AWS::Lambda::Function": self._function,
            "AWS::Lambda::Version": self._version,
            "AWS::Lambda::Alias": self._alias,
            "AWS::Lambda::EventInvokeConfig": self._invoke_now,
            "AWS::Lambda::EventSourceMapping": self._mapping,
            "AWS::EMRServerless::Application": self._jobs,
            "AWS::StepFunctions::StateMachine": self._machine,
            "AWS::Events::Rule": self._rule,
            "AWS::Scheduler::Schedule": self._clock,
        }

    def make(self, kind: str) -> list[str]:
        """Create every resource of a type, and all that it names; return their references."""
        found = self.template.of_type(kind)
        return [self.named(name, None) for name in found if not self._streams(name)]

    def named(self, logical: str, attribute: str | None) -> str:
        """Return the reference of a resource, or an attribute of it."""
        if logical in _PSEUDO:
            return _PSEUDO[logical]
        if logical not in self._made:
            self._made[logical] = self._make(logical)
        made = self._made[logical]
        return made.name if attribute is None else made.attributes.get(attribute, made.name)

    def function(self, name: str) -> Properties:
        """Return the template's properties of the function that the blueprint calls *name*."""
        for logical in self.template.of_type("AWS::Lambda::Function"):
            told: Properties = self.template.resources[logical]["Properties"]
            if told["FunctionName"] == f"tidings-{STAGE}-{name}":
                return told
        raise LookupError(name)

    def mapping(self, function: str) -> tuple[str, Properties]:
        """Return the mapping of a stream to *function*: its id and its properties."""
        for logical in self.template.of_type("AWS::Lambda::EventSourceMapping"):
            told = _with_tags(resolved(self.template.resources[logical]["Properties"], self.named))
            if told["FunctionName"].endswith(f":tidings-{STAGE}-{function}:{LIVE}"):
                return self.named(logical, None), told
        raise LookupError(function)

    def create(self, told: Properties) -> Made:
        """Create a function, by the resolved properties of one of the template's."""
        functions, name = boto3.client("lambda"), told["FunctionName"]
        variables = told["Environment"]["Variables"] | ENVIRONMENT
        changed = {
            "Code": {"ZipFile": self.template.zipped(told["Code"]["S3Key"])},
            "Environment": {"Variables": variables},
        }
        # Another call sets it; LocalStack has no guard against loops that it would switch off.
        asked = {each: value for each, value in told.items() if each != "RecursiveLoop"}
        functions.create_function(**_with_tags(asked) | changed)
        functions.get_waiter("function_active_v2").wait(FunctionName=name)
        return Made(name, {"Arn": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}"})

    def output(self, name: str) -> str:
        """Return an output of the stack."""
        return str(resolved(self.template.outputs[name], self.named))

    def _streams(self, logical: str) -> bool:
        """Runs under the web adapter, a layer of AWS's account that only their Pro edition gets."""
        told = self.template.resources[logical].get("Properties", {})
        return bool(told.get("Handler") == STREAM_HANDLER)

    def _make(self, logical: str) -> Made:
        resource = self.template.resources[logical]
        maker = self._makers.get(resource["Type"])
        if maker is None:
            return Made(logical, {"Arn": f"arn:aws:iam::{ACCOUNT}:role/{logical}"})
        return maker(logical, resolved(resource.get("Properties", {}), self.named))

    def _table(self, logical: str, told: Properties) -> Made:
        tables = boto3.client("dynamodb")
        streams = told.get("StreamSpecification")
        asked = {name: told[name] for name in ("AttributeDefinitions", "KeySchema", "BillingMode")}
        if streams:
            asked["StreamSpecification"] = streams | {"StreamEnabled": True}
        made = tables.create_table(TableName=logical, **asked)["TableDescription"]
        tables.update_time_to_live(
            TableName=logical, TimeToLiveSpecification=told["TimeToLiveSpecification"]
        )
        stream = {"StreamArn": made["LatestStreamArn"]} if streams else {}
        return Made(logical, {"Arn": made["TableArn"], **stream})

    def _bucket(self, logical: str, told: Properties) -> Made:
        objects, name = boto3.client("s3"), f"tidings-{logical.lower()}"
        objects.create_bucket(Bucket=name)
        if "NotificationConfiguration" in told:
            objects.put_bucket_notification_configuration(
                Bucket=name, NotificationConfiguration={"EventBridgeConfiguration": {}}
            )
        return Made(name, {"Arn": f"arn:aws:s3:::{name}"})

    def _topic(self, logical: str, told: Properties) -> Made:
        arn = boto3.client("sns").create_topic(Name=logical)["TopicArn"]
        return Made(arn, {"TopicArn": arn})

    def _layer(self, logical: str, told: Properties) -> Made:
        made = boto3.client("lambda").publish_layer_version(
            LayerName=logical,
            Content={"ZipFile": self.template.zipped(told["Content"]["S3Key"])},
            CompatibleRuntimes=told["CompatibleRuntimes"],
        )
        return Made(made["LayerVersionArn"], {})

    def _function(self, logical: str, told: Properties) -> Made:
        return self.create(told)

    def _version(self, logical: str, told: Properties) -> Made:
        made = boto3.client("lambda").publish_version(FunctionName=told["FunctionName"])
        return Made(made["FunctionArn"], {"Version": made["Version"]})

    def _alias(self, logical: str, told: Properties) -> Made:
        made = boto3.client("lambda").create_alias(**told)
        return Made(made["AliasArn"], {})

    def _invoke_now(self, logical: str, told: Properties) -> Made:
        boto3.client("lambda").put_function_event_invoke_config(**told)
        return Made(logical, {})

    def _mapping(self, logical: str, told: Properties) -> Made:
        made = boto3.client("lambda").create_event_source_mapping(**_with_tags(told))
        return Made(made["UUID"], {})

    def _jobs(self, logical: str, told: Properties) -> Made:
        return Made(boto3.client("sqs").create_queue(QueueName=logical)["QueueUrl"], {})

    def _machine(self, logical: str, told: Properties) -> Made:
        (queue,) = self.make("AWS::EMRServerless::Application")
        made = boto3.client("stepfunctions").create_state_machine(
            name=told["StateMachineName"],
            definition=jobs.over_queue(told["DefinitionString"], queue),
            roleArn=told["RoleArn"],
        )
        return Made(made["stateMachineArn"], {"Arn": made["stateMachineArn"]})

    def _rule(self, logical: str, told: Properties) -> Made:
        pattern = json.dumps(told["EventPattern"])
        return self._targeted(logical, told["Targets"], EventPattern=pattern)

    def _clock(self, logical: str, told: Properties) -> Made:
        """Create a rule of the default bus: LocalStack keeps schedules and never runs them."""
        target = {"Id": "clock", "Arn": told["Target"]["Arn"]}
        return self._targeted(logical, [target], ScheduleExpression=told["ScheduleExpression"])

    def _targeted(self, logical: str, targets: list[Properties], **when: str) -> Made:
        events = boto3.client("events")
        arn = events.put_rule(Name=logical, **when)["RuleArn"]
        failed = events.put_targets(Rule=logical, Targets=targets)["FailedEntries"]
        assert not failed, failed
        return Made(logical, {"Arn": arn})


def _with_tags(told: Properties) -> Properties:
    """A template lists tags, Lambda's API takes them by their names."""
    return told | {"Tags": {tag["Key"]: tag["Value"] for tag in told.get("Tags", ())}}
