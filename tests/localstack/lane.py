"""From nothing to a stage in LocalStack, and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import boto3
from botocore.config import Config
from tidings.aws.config.stages import SYNC_BUCKET_OUTPUT

from infra import build_layers, node, stage_on_emulator, synth
from tests.localstack import container, host, jobs, packages
from tests.localstack.stage import STAGE, Stage
from tests.localstack.template import Template

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
TOLD = (
    packages.Missing,
    host.NotUp,
    node.NodeMissing,
    build_layers.LayerNotBuilt,
    synth.SynthFailed,
)


@contextmanager
def running(say: Say, url: str | None = None) -> Iterator[Stage]:
    """
    The dev stage in a LocalStack of its own, or in that at *url*, with this process's AWS clients
    pointed at it.

    Raises:
        one of `TOLD`: in a sentence, what is missing or failed.
    """
    with _localstack(say, url) as found, _environment(found.environment):
        say(f"LocalStack answers at {found.url}")
        stage = _made(say)
        (queue,) = stage.make("AWS::EMRServerless::Application")
        with jobs.running(queue, stage.output(SYNC_BUCKET_OUTPUT), packages.FOLDER / "job"):
            yield stage


@contextmanager
def _localstack(say: Say, url: str | None) -> Iterator[host.LocalStack]:
    if url is not None:
        yield host.LocalStack(url)
        return
    if container.possible():
        say(f"starting the container {container.IMAGE}")
        with container.running() as found:
            yield found
        return
    say("installing LocalStack into build/localstack, minutes the first time")
    python = packages.interpreter()
    say("starting it, without Docker")
    with host.running(python, packages.FOLDER / "run") as found:
        yield found


def _made(say: Say) -> Stage:
    say(f"synthesising the stage {STAGE}")
    assembly = packages.FOLDER / "cdk.out"
    synth.synth(assembly, stage=STAGE)
    stage_on_emulator.for_this_machine(assembly)
    stage = Stage(Template(assembly, STAGE))
    _wake_engine()
    for kind in KINDS:
        say(f"{len(stage.make(kind))} x {kind}")
    return stage


def _wake_engine() -> None:
    """
    It starts with the first call, and a busy machine takes longer for it than a client waits: so
    with one that may be repeated, while a table is not made twice.
    """
    boto3.client("dynamodb", config=Config(read_timeout=ENGINE_S)).list_tables()


@contextmanager
def _environment(told: dict[str, str]) -> Iterator[None]:
    """Of this process, until the end; boto3's default session forgets what it read before."""
    before = dict(os.environ)
    os.environ.update(told)
    boto3.DEFAULT_SESSION = None
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        boto3.DEFAULT_SESSION = None
