"""Steps that deploy the stage, and update it as a release does."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidings.aws.config.account import Account
from tidings.aws.config.stages import ACCOUNT_STACK, data_stack_name, stack_name

from infra import cdk_cli, remains, smoke, synth
from infra.sandbox.ground import Ground
from infra.sandbox.steps import CouldNot, Figures, NotSo

_CANARY_S = 300  # a tenth of the calls for so long (infra.parts.delivery)
_UPDATE_S = 240  # of CloudFormation around it
_CANARY_RATE = 5  # operations a second: each function that is tried is called all the while
_GROUP = "AWS::CodeDeploy::DeploymentGroup"
_APPLICATION = "AWS::CodeDeploy::Application"


def bootstrap(ground: Ground) -> Figures:
    """The CDK's own stack, where there is none; one that is there stays as it is."""
    found = Account(ground.client).bootstrap_version()
    if found is not None:
        return {"version": found, "made by this run": "no"}
    assembly = _synthesised(ground, 1)
    cdk(ground, assembly).bootstrap(ground.place.account, ground.place.region)
    version = Account(ground.client).bootstrap_version()
    return {"version": version or "unknown", "made by this run": "yes; it stays"}


def doctor(ground: Ground) -> Figures:
    """What `tidings doctor` finds; notes and what could not be asked are figures."""
    printed = ground.tidings("doctor", "--stage", ground.stage, "--json", fine=(0, 1))
    findings = [json.loads(line) for line in printed.splitlines()]
    failing = [each for each in findings if each["verdict"] == "fails"]
    ground.facts["gateway-role"] = next(
        (each["verdict"] for each in findings if each["check"] == "gateway-role"), "ok"
    )
    figures = {each["check"]: f"{each['verdict']}: {each['says']}" for each in findings}
    if failing:
        told = "; ".join(f"{each['check']}: {each['says']}; {each['do']}" for each in failing)
        raise NotSo(f"a deploy would fail: {told}", figures)
    return figures


def deploy(ground: Ground) -> Figures:
    """
    The three stacks. Where API Gateway has a logging role of somebody else's, it keeps that one.
    """
    assembly = _synthesised(ground, 1)
    stacks = [data_stack_name(ground.stage), stack_name(ground.stage)]
    if ground.facts.get("gateway-role") != "note":
        stacks.insert(0, ACCOUNT_STACK)
    commands = cdk(ground, assembly)
    for each in stacks:
        commands.deploy(each, exclusively=True)
    serve(ground)
    parts = remains.parts(ground.place, *stacks[-2:])
    kinds = Counter(each.kind for each in parts.values())
    return {"resources": len(parts), "functions": kinds["AWS::Lambda::Function"]}


def serve(ground: Ground) -> None:
    """Find the addresses of the stage, with all that its clients need, until *ground* is left."""
    serving = ground.place.serving(ground.stage, assembly_of(ground, 1))
    ground.addresses = ground.opened.enter_context(serving)


def canary(ground: Ground) -> Figures:
    """Another version of each function, while somebody posts and listens."""
    assembly = _synthesised(ground, 2)
    seconds = _CANARY_S + _UPDATE_S
    listening = replace(ground, stop=threading.Event())  # ended with the deploy, if that fails
    with ThreadPoolExecutor(1) as beside:
        heard = beside.submit(load, listening, seconds, _CANARY_RATE)
        try:
            cdk(ground, assembly).deploy(stack_name(ground.stage), exclusively=True)
        except BaseException:
            listening.stop.set()
            raise
        figures = heard.result()
    return figures | _shifted(ground)


def load(ground: Ground, seconds: float, rate: float) -> dict[str, str | int | float]:
    """
    What `bench.load` measured and checked.

    Raises:
        NotSo: something was lost, repeated, moved or altered.
    """
    found = loaded(ground, seconds, rate)
    figures: dict[str, str | int | float] = {
        f"{kind}, {share}": f"{spread[share] * 1000:,.0f} ms"
        for kind, spread in found["latency_s"].items()
        for share in ("p50", "p99", "max")
        if spread
    }
    counts = found["counts"]
    figures |= {
        "operations": counts["acknowledged"],
        "heard": counts["heard"],
        "requests tried again": counts["retries"],
        "promises broken": found["violations"]["count"],
    }
    if found["violations"]["count"]:
        raise NotSo("; ".join(found["violations"]["first"][:5]), figures)
    return figures


def loaded(ground: Ground, seconds: float, rate: float) -> Any:
    """The JSON of `python -m bench.load`; it ends with 1 where something was lost."""
    addresses = ground.addresses
    where = (f"--url={addresses.feed}", f"--stream-url={addresses.stream}")
    asked = (f"--ws-url={addresses.sockets}", f"--duration={seconds}", f"--rate={rate}", "--json")
    by = () if ground.streams else ("--transport=ws",)
    command = [sys.executable, "-m", "bench.load", *where, *asked, *by]
    return json.loads(ground.run(command, fine=(0, 1)).splitlines()[-1])


def smoked(ground: Ground) -> Figures:
    """The three sentences of `infra.smoke`."""
    return {f"{at}": line for at, line in enumerate(smoke.run(*ground.addresses), 1)}


def cdk(ground: Ground, assembly: Path) -> cdk_cli.Cdk:
    return cdk_cli.Cdk(assembly, dict(ground.place.environment))


def assembly_of(ground: Ground, release: int) -> Path:
    return ground.folder / f"release-{release}"


def _synthesised(ground: Ground, release: int) -> Path:
    outdir = assembly_of(ground, release)
    if not outdir.is_dir():
        asked = {"expires": ground.expires, "release": str(release)}
        synth.synth(outdir, stage=ground.stage, **asked)
        ground.place.prepare(outdir)
    return outdir


def _shifted(ground: Ground) -> dict[str, str | int | float]:
    """How CodeDeploy says that its canaries ended."""
    deploys = ground.client("codedeploy")
    parts = remains.parts(ground.place, stack_name(ground.stage)).values()
    (application,) = (each.name for each in parts if each.kind == _APPLICATION)
    found: Counter[str] = Counter()
    for group in (each.name for each in parts if each.kind == _GROUP):
        asked = {"applicationName": application, "deploymentGroupName": group}
        for each in deploys.list_deployments(**asked)["deployments"]:
            told = deploys.get_deployment(deploymentId=each)["deploymentInfo"]
            found[str(told["status"])] += 1
    if not found:
        raise CouldNot("CodeDeploy knows of no deployment: no version was changed")
    figures: dict[str, str | int | float] = {f"canaries {s}": n for s, n in sorted(found.items())}
    if set(found) != {"Succeeded"}:
        raise NotSo("a canary did not end well", figures)
    return figures
