"""
`make deploy-smoke`: the real CDK command line takes stages onto MiniStack, and away again.

The release before this one is deployed, split into the stacks of this one and updated, while a
client has a cursor and a connection; the conformance suite runs against what came of it; then it is
destroyed, and a stage that keeps its data as well. What agreement with an emulator is worth, and
where this one differs from AWS, is in docs/operations/TESTING.md.
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
from typing import Any

from botocore.exceptions import ClientError
from tidings.aws.config.stages import ACCOUNT_STACK, data_stack_name, stack_name

from infra import (
    build_layers,
    cdk_cli,
    conformance,
    emulator,
    last_release,
    lasting,
    node,
    remains,
    settings,
    smoke,
    split,
    stage_on_emulator,
    synth,
    tidings_cli,
    upgrade,
    whole,
)
from infra.paths import BUILD, ROOT

STAGE, KEPT = "dev", "prod"  # the second one keeps its data
CHANGE_SET = "upgrade-drill"

_TOLD = (
    node.NodeMissing,
    build_layers.LayerNotBuilt,
    synth.SynthFailed,
    emulator.EmulatorFailed,
    cdk_cli.CdkFailed,
    stage_on_emulator.NotUp,
    smoke.SmokeFailed,
    split.CannotSplit,
    tidings_cli.CommandFailed,
    upgrade.UpgradeFailed,
    remains.WrongRemains,
)


@dataclass(frozen=True, slots=True)
class Account:
    """The emulator, the assemblies of the last release and of this one, the CDK on each."""

    aws: emulator.Emulator
    old: cdk_cli.Cdk
    new: cdk_cli.Cdk


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # leaves no process behind
    try:
        sys.exit(_everything(sys.argv[1:]))
    except _TOLD as problem:
        sys.exit(str(problem))


def _everything(options: list[str]) -> int:
    folder = BUILD / "smoke"
    with emulator.running(folder / "emulator") as aws:
        with _step("synthesised, and the last release unpacked"):
            account = _account(aws, folder)
        with _step("cdk bootstrap"):
            account.new.bootstrap(emulator.ACCOUNT, emulator.REGION)
        failed = _updated(account, options)
        _destroyed(account, STAGE)
        with _step(f"cdk deploy of {KEPT}"):
            account.new.deploy(stack_name(KEPT))
        _destroyed(account, KEPT)
        return failed


def _account(aws: emulator.Emulator, folder: Path) -> Account:
    today = folder / "today"
    synth.synth(today)
    old = last_release.unpack(folder / "release", today)
    for assembly in (old, today):
        for template in assembly.glob("*.template.json"):
            stage_on_emulator.without_the_unknown(template)
        stage_on_emulator.for_this_machine(assembly)
    variables = aws.environment
    return Account(aws, cdk_cli.Cdk(old, variables), cdk_cli.Cdk(today, variables))


def _updated(account: Account, options: list[str]) -> int:
    """Deploy the last release and this one over it; the suite's return code."""
    (stage,), stack = settings.chosen(STAGE), stack_name(STAGE)
    drill = upgrade.Drill(STAGE, account.aws.environment)
    with _step(f"cdk deploy of the last release, {last_release.version()}"):
        outputs = account.old.deploy(stack)
    with (
        _step("passwords, operations, a cursor and a connection on it"),
        stage_on_emulator.served(stage, outputs, account.aws, account.old.assembly) as addresses,
    ):
        drill.before(addresses)
    outputs = _update(account, stack)
    with stage_on_emulator.served(stage, outputs, account.aws, account.new.assembly) as addresses:
        with _step("after the update"):
            _say(drill.after(addresses))
            drill.end(addresses)
            declared = ("feed", "set", "--stage", STAGE, *conformance.DECLARED)
            tidings_cli.run(account.aws.environment, *declared)
        with _step("first and simple things"):
            _say(smoke.run(*addresses))
        with _step("conformance"):
            suite = conformance.command(addresses, stage_on_emulator.NOT_HERE, options)
            return subprocess.run(suite, cwd=ROOT, check=False).returncode


def _update(account: Account, stack: str) -> cdk_cli.Outputs:
    before = remains.parts(account.aws, stack)
    data, aws = data_stack_name(STAGE), account.aws
    if data not in last_release.stacks():
        imported = account.new.assembly / f"{data}.template.json"
        stage_on_emulator.as_deployed(imported, last_release.template(settings.chosen(STAGE)[0]))
        with _step("python -m infra.split"):
            for step in split.steps(STAGE, account.new.assembly, aws.client):
                step.does()
                _say([step.says])
            _check_kept(before, remains.parts(aws, data, stack))
    account.new.deploy(ACCOUNT_STACK)
    for each in (data, stack):
        with _step(f"change set of {each}: nothing that lasts is removed or replaced"):
            account.new.prepare(each, CHANGE_SET)
            _check_change_set(aws, each)
        with _step(f"cdk deploy of {each} over it"):
            outputs = account.new.deploy(each)
    with _step("what lasts is the same by its physical ids"):
        _check_kept(before, remains.parts(aws, data, stack))
    with _step("cdk diff --fail: no difference"):
        for each in (ACCOUNT_STACK, data, stack):
            account.new.same(each)
    with _step("python -m infra.split: nothing is left to do"):
        left = [step.says for step in split.steps(STAGE, account.new.assembly, aws.client)]
        if left:
            raise upgrade.UpgradeFailed(f"split once more: {left}")
    return outputs


def _check_kept(before: remains.Parts, after: remains.Parts) -> None:
    kept = {name: each for name, each in before.items() if each.kind in lasting.LASTING}
    other = [name for name, each in kept.items() if after.get(name) != each]
    if other:
        raise upgrade.UpgradeFailed(f"another one now: {', '.join(other)}")


def _check_change_set(aws: emulator.Emulator, stack: str) -> None:
    changes: list[Any] = []
    request = {"StackName": stack, "ChangeSetName": CHANGE_SET}
    cloudformation = aws.client("cloudformation")
    while True:
        page = cloudformation.describe_change_set(**request)
        changes += page["Changes"]
        if "NextToken" not in page:
            break
        request["NextToken"] = page["NextToken"]
    cloudformation.delete_change_set(StackName=stack, ChangeSetName=CHANGE_SET)
    if not changes:
        raise upgrade.UpgradeFailed("the change set is empty: this is the last release")
    wrong = lasting.replaced(changes)
    if wrong:
        raise upgrade.UpgradeFailed(f"an update would replace {', '.join(wrong)}")


def _destroyed(account: Account, stage: str) -> None:
    data, stack = data_stack_name(stage), stack_name(stage)
    template = whole.of_assembly(account.new.assembly, stage)
    parts = remains.parts(account.aws, data, stack)
    with _step(f"cdk destroy of {stage}"):
        if stage == STAGE:  # prod's stay
            remains.empty(account.aws, parts)
        else:
            _unprotect(account, (data, stack))
        began_ms = time.time() * 1000
        account.new.destroy(data)
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
