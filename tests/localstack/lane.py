"""Create a stage in LocalStack from nothing, and remove it completely."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import boto3
from botocore.config import Config

from infra import builds, cdk_cli, emulator, synth
from tests.localstack import host, jobs
from tests.localstack.stage import STAGE, Stage
from tests.localstack.template import Template
from tidings.aws.config.stages import SYNC_BUCKET_OUTPUT

ENGINE_S = 300  # it was seen to take a minute on a busy machine
Say = Callable[[str], None]
# In the order in which something first calls what is made before.
KINDS = (
    "AWS::DynamoDB::Table",
    "AWS::Lambda::Function",
    "AWS::Lambda::EventInvokeConfig",
    "AWS::Lambda::EventSourceMapping",
    "AWS::StepFunctions::StateMachine",
    "AWS::Events::Rule",
    "AWS::Scheduler::Schedule",
)
EXPECTED_ERRORS = (
    host.Missing,
    host.NotUp,
    cdk_cli.NodeMissing,
    builds.NotBuilt,
    synth.SynthFailed,
)


@contextmanager
def running(say: Say, url: str | None = None) -> Iterator[Stage]:
    """Make the dev stage in a LocalStack of its own, or in the one at *url*; AWS clients of this
    process are directed there.

    Raises:
        one of `EXPECTED_ERRORS`: with a sentence about the missing or failed part.
    """
    if url is None:
        say("starting LocalStack without Docker; the first time it is installed, for minutes")
    found = host.running() if url is None else nullcontext(emulator.clients_of(url))
    with found as variables, _environment(variables):
        say(f"LocalStack answers at {variables['AWS_ENDPOINT_URL']}")
        stage = _made(say)
        (queue,) = stage.make("AWS::EMRServerless::Application")
        with jobs.running(queue, stage.output(SYNC_BUCKET_OUTPUT), host.FOLDER / "job"):
            yield stage


def _made(say: Say) -> Stage:
    say(f"synthesising the stage {STAGE}")
    assembly = host.FOLDER / "cdk.out"
    synth.synth(assembly, stage=STAGE)
    emulator.for_this_machine(assembly, host.packages())
    stage = Stage(Template(assembly, STAGE))
    _wake_engine()
    for kind in KINDS:
        say(f"{len(stage.make(kind))} x {kind}")
    return stage


def _wake_engine() -> None:
    """It starts with the first call, and a busy machine takes longer for it than a client waits: so
    with one that may be repeated, while a table is not made twice.
    """
    boto3.client("dynamodb", config=Config(read_timeout=ENGINE_S)).list_tables()


@contextmanager
def _environment(told: dict[str, str]) -> Iterator[None]:
    """Set the environment of this process, until the end, and boto3's default session."""
    before = dict(os.environ)
    os.environ.update(told)
    boto3.DEFAULT_SESSION = None
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        boto3.DEFAULT_SESSION = None
