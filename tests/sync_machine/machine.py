"""The state machine of a stage in moto's interpreter, with the services that it calls."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import boto3
from moto import mock_aws
from moto.core.config import DefaultConfig
from moto.sns.models import sns_backends
from moto.stepfunctions.parser.models import StepFunctionsParserBackend

from functions.correct.handler import handle as correct
from functions.steer.handler import handle as steer
from infra.parts.sync_states import Wiring, definition
from tests.sync_machine.lambda_api import LambdaApi

REGION = "us-east-1"  # where the tables of a twin are
ACCOUNT = "123456789012"  # moto's
BUCKET = "syncs"
INTERPRETED: DefaultConfig = {
    "stepfunctions": {"execute_state_machine": True},
    "core": {"mock_credentials": False},  # the environment's are looked at, by a twin's DynamoDB
}
# The definition is the same in each test, and takes half a second to parse.
_backend: Any = StepFunctionsParserBackend
_backend._validate_definition = staticmethod(cache(_backend._validate_definition))
DEADLINE_S = 300.0  # an execution takes a second or two, a Spark job ten; a busy machine more

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",  # moto knows no endpoint of an account
    "POWERTOOLS_SERVICE_NAME": "tidings-dev",
    "TIDINGS_STAGE": "dev",
    "TIDINGS_FUNCTION_PREFIX": "tidings-dev-",
}


@dataclass(frozen=True)
class Ended:
    """*output* of an execution that succeeded, *error* and *cause* of one that failed."""

    status: str
    output: dict[str, Any]
    error: str
    cause: str


@dataclass(frozen=True)
class Machine:
    arn: str
    topic: str
    api: LambdaApi
    client: Any

    def run(self, request: object, name: str = "one") -> Ended:
        return self.end_of(self.start(request, name))

    def start(self, request: object, name: str = "one") -> str:
        started = self.client.start_execution(
            stateMachineArn=self.arn, name=name, input=json.dumps(request)
        )
        return str(started["executionArn"])

    def end_of(self, execution: str) -> Ended:
        found = _eventually(lambda: self._ended(execution), "the execution ends")
        output = json.loads(found.get("output") or "{}")
        return Ended(found["status"], output, found.get("error", ""), found.get("cause", ""))

    def _ended(self, execution: str) -> Any:
        found = self.client.describe_execution(executionArn=execution)
        return None if found["status"] == "RUNNING" else found

    @property
    def told(self) -> list[tuple[str, str]]:
        """Subject and message of each notification."""
        topic = sns_backends[ACCOUNT][REGION].topics[self.topic]
        return [(each[2] or "", each[1]) for each in topic.sent_notifications]

    def asked(self) -> str:
        """Return the message that asks for an answer, once its token is there."""
        _eventually(lambda: self.keys("approvals/"), "an answer is waited for")
        return self.told[-1][1]

    def keys(self, prefix: str) -> list[str]:
        found = boto3.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for each in found.get("Contents", [])]

    def corrected(self) -> list[dict[str, Any]]:
        """Return the events that the function `correct` got."""
        return [event for name, event in self.api.invoked if name == "correct"]

    def states(self, execution: str) -> list[str]:
        """Return the names of the states that were entered."""
        events = self.client.get_execution_history(executionArn=execution)["events"]
        entered = [each.get("stateEnteredEventDetails") for each in events]
        return [each["name"] for each in entered if each]


@contextmanager
def machine(state_table: str) -> Iterator[Machine]:
    """Yield the machine on moto; Lambda is `LambdaApi`. The environment is the caller's."""
    with LambdaApi(correct=correct, steer=steer) as api, mock_aws(config=INTERPRETED):
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        topic = boto3.client("sns").create_topic(Name="syncs")["TopicArn"]
        client = boto3.client("stepfunctions")
        arn = client.create_state_machine(
            name="tidings-dev-sync",
            definition=json.dumps(definition(wiring(topic, state_table))),
            roleArn=f"arn:aws:iam::{ACCOUNT}:role/sync",
        )["stateMachineArn"]
        yield Machine(arn, topic, api, client)


def wiring(topic: str, state_table: str) -> Wiring:
    function = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:tidings-dev"
    return Wiring(
        partition="aws",
        region=REGION,
        bucket=BUCKET,
        topic=topic,
        state_table_name=state_table,
        state_table_arn=f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{state_table}",
        steer=f"{function}-steer",
        correct=f"{function}-correct",
        job={"ApplicationId": "a", "JobDriver": {"SparkSubmit": {"EntryPoint": "s3://x/e.py"}}},
    )


def _eventually(look: Any, what: str) -> Any:
    until = time.monotonic() + DEADLINE_S
    while not (found := look()):
        assert time.monotonic() < until, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.1)
    return found
