"""
`make deploy-smoke`: the real CDK command line takes stages onto MiniStack, and away again.

A stage is deployed, the conformance suite runs against it, and it is destroyed; then a stage that
keeps its data is deployed and destroyed. docs/operations/TESTING.md says what agreement with an
emulator shows, and where this one differs from AWS.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from botocore.exceptions import ClientError
from tidings.aws.config.stages import ACCOUNT_STACK, data_stack_name, stack_name

from infra import (
    build_layers,
    cdk_cli,
    conformance,
    emulator,
    node,
    remains,
    settings,
    smoke,
    stage_on_emulator,
    synth,
    tidings_cli,
    whole,
)
from infra.paths import BUILD, ROOT

STAGE, KEPT = "dev", "prod"  # the second one keeps its data

_TOLD = (
    node.NodeMissing,
    build_layers.LayerNotBuilt,
    synth.SynthFailed,
    emulator.EmulatorFailed,
    cdk_cli.CdkFailed,
    stage_on_emulator.NotUp,
    smoke.SmokeFailed,
    tidings_cli.CommandFailed,
    remains.WrongRemains,
)


@dataclass(frozen=True, slots=True)
class Account:
    """The emulator, and the CDK on this checkout's assembly."""

    aws: emulator.Emulator
    cdk: cdk_cli.Cdk


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # leaves no process behind
    try:
        sys.exit(_everything(sys.argv[1:]))
    except _TOLD as problem:
        sys.exit(str(problem))


def _everything(options: list[str]) -> int:
    folder = BUILD / "smoke"
    with emulator.running(folder / "emulator") as aws:
        with _step("synthesised"):
            account = _account(aws, folder / "today")
        with _step("cdk bootstrap"):
            account.cdk.bootstrap(emulator.ACCOUNT, emulator.REGION)
        failed = _deployed(account, options)
        _destroyed(account, STAGE)
        with _step(f"cdk deploy of {KEPT}"):
            account.cdk.deploy(stack_name(KEPT))
        _destroyed(account, KEPT)
        return failed


def _account(aws: emulator.Emulator, assembly: Path) -> Account:
    synth.synth(assembly)
    for template in assembly.glob("*.template.json"):
        stage_on_emulator.without_the_unknown(template)
    stage_on_emulator.for_this_machine(assembly)
    return Account(aws, cdk_cli.Cdk(assembly, aws.environment))


def _deployed(account: Account, options: list[str]) -> int:
    """Deploy the stage and return the exit status of the conformance suite against it."""
    (stage,), stack = settings.chosen(STAGE), stack_name(STAGE)
    with _step(f"cdk deploy of {STAGE}"):
        outputs = account.cdk.deploy(stack)
    with _step("cdk diff --fail: no difference"):
        for each in (ACCOUNT_STACK, data_stack_name(STAGE), stack):
            account.cdk.same(each)
    with stage_on_emulator.served(stage, outputs, account.aws, account.cdk.assembly) as addresses:
        declared = ("feed", "set", "--stage", STAGE, *conformance.DECLARED)
        tidings_cli.run(account.aws.environment, *declared)
        with _step("smoke test"):
            _say(smoke.run(*addresses))
        with _step("conformance"):
            suite = conformance.command(addresses, stage_on_emulator.NOT_HERE, options)
            return subprocess.run(suite, cwd=ROOT, check=False).returncode


def _destroyed(account: Account, stage: str) -> None:
    data, stack = data_stack_name(stage), stack_name(stage)
    template = whole.of_assembly(account.cdk.assembly, stage)
    parts = remains.parts(account.aws, data, stack)
    with _step(f"cdk destroy of {stage}"):
        if stage == STAGE:  # prod's stay
            remains.empty(account.aws, parts)
        else:
            _unprotect(account, (data, stack))
        began_ms = time.time() * 1000
        account.cdk.destroy(data)
        _say([f"left behind: {remains.check(account.aws, template, parts, began_ms)}"])


def _unprotect(account: Account, stacks: Iterable[str]) -> None:
    """What must be done before either is destroyed, and is seen to be needed."""
    cloudformation = account.aws.client("cloudformation")
    for stack in stacks:
        try:
            cloudformation.delete_stack(StackName=stack)
        except ClientError:
            pass  # so it should be
        else:
            raise remains.WrongRemains(f"{stack} can be deleted by one command")
        cloudformation.update_termination_protection(
            StackName=stack, EnableTerminationProtection=False
        )


@contextmanager
def _step(done: str) -> Iterator[None]:
    """Tell what was done, once it is, with its seconds."""
    started = time.monotonic()
    yield
    sys.stdout.write(f"{time.monotonic() - started:6.1f} s  {done}\n")
    sys.stdout.flush()


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"          {line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
