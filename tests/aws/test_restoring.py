"""The restore of RUNBOOKS.md, from damage to recovery, on a stage that the templates deploy."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import boto3
import pytest

from infra import cdk_cli, emulator, settings
from infra.stack import compose
from tests.aws.stage import Stage, until
from tidings.aws.config import deployment
from tidings.aws.config.stages import stack_name, table_name

NAME, SUFFIX = "restored", "2"
_SAVED = ("log", "state", "control", "outbox")
_HANDLED_S = 120


@pytest.mark.timeout(1800)
def test_a_damaged_stage_is_restored_by_the_runbook(stage: Stage, tmp_path: Path) -> None:
    """The alias of every function leads to the restored tables, and nothing kept is lost."""
    if "AWS_ENDPOINT_URL" not in os.environ:
        pytest.skip("only on an emulator: a table of AWS is restored to a moment minutes ago")
    url = os.environ["AWS_ENDPOINT_URL"]
    (dev,) = settings.choose_stages("dev")
    before = replace(dev, name=NAME)
    first = _deployed(before, tmp_path / "first")
    with emulator.serve_stage(before, tmp_path / "first", url) as addresses:
        there = Stage(NAME, addresses, stage.region)
        kept = there.post([{"event": "insert", "type": "video", "id": "kept"}])
        _settle(there)
        saved = {table: _items(there, first[table]) for table in _SAVED}
        (lost,) = there.post([{"event": "insert", "type": "video", "id": "lost"}])
        _settle(there)
    _damage(there, first["log"])
    for table in _SAVED:  # instead of `aws dynamodb restore-table-to-point-in-time`
        _copy(there, first[table], table_name(NAME, table, SUFFIX), saved[table])
    where = ("--stage", NAME, "--tables", SUFFIX, "--json")
    there.tidings("restore", *where, "--heard", lost)
    there.tidings("rebuild", *where)
    after = replace(before, tables=SUFFIX, tables_before="")
    second = _deployed(after, tmp_path / "second", imports=True)
    assert second == {each.name: table_name(NAME, each.name, SUFFIX) for each in deployment.TABLES}
    assert _live_tables(there) == {second["log"]}
    with emulator.serve_stage(after, tmp_path / "second", url) as addresses:
        there = Stage(NAME, addresses, stage.region)
        (posted,) = there.post([{"event": "insert", "type": "video", "id": "posted"}])
        assert posted > lost > kept[0]
        wanted = {"kept", "posted"}
        until(lambda: _objects(there, second["state"]) == wanted, _HANDLED_S, "the followers ran")
        _settle(there)


def _deployed(stage: settings.Stage, outdir: Path, *, imports: bool = False) -> dict[str, str]:
    """Deploy *stage*; return the names of its tables."""
    app = cdk.App(outdir=str(outdir))
    compose(app, [stage])
    app.synth()
    emulator.adapt(outdir)
    cdk_cli.Cdk(outdir, {}).deploy(stack_name(stage.name), imports=imports)
    parameters = boto3.client("ssm")
    path = f"/tidings/{stage.name}/"
    return {
        table.name: parameters.get_parameter(Name=f"{path}{table.name}-table")["Parameter"]["Value"]
        for table in deployment.TABLES
    }


def _settle(stage: Stage) -> None:
    """Wait until the state has everything that the log has."""

    def settled() -> bool:
        printed = stage.tidings("verify", "--stage", NAME, "--json", fine=(0, 3))
        differences: dict[str, int] = json.loads(printed.splitlines()[-1])["differences"]
        return sum(differences.values()) == 0

    until(settled, _HANDLED_S, "the state equals the log")


def _items(stage: Stage, table: str) -> list[dict[str, Any]]:
    pages = stage.client("dynamodb").get_paginator("scan").paginate(TableName=table)
    return [item for page in pages for item in page["Items"]]


def _objects(stage: Stage, table: str) -> set[str]:
    """Return the ids of the objects in the state."""
    rows = [row["key"]["S"] for row in _items(stage, table)]
    return {name for name in ("kept", "lost", "posted") if any(name in row for row in rows)}


def _damage(stage: Stage, log: str) -> None:
    """Delete all pages, as an operator's mistake would."""
    for item in _items(stage, log):
        key = {name: item[name] for name in ("feed", "page")}
        stage.client("dynamodb").delete_item(TableName=log, Key=key)


def _copy(stage: Stage, like: str, name: str, items: list[dict[str, Any]]) -> None:
    """Create the table *name* with the keys of *like*, and *items* of an earlier moment."""
    tables = stage.client("dynamodb")
    described = tables.describe_table(TableName=like)["Table"]
    same = {each: described[each] for each in ("KeySchema", "AttributeDefinitions")}
    streamed = (
        {"StreamSpecification": described["StreamSpecification"]}
        if described.get("StreamSpecification")
        else {}
    )
    tables.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **same, **streamed)
    for item in items:
        tables.put_item(TableName=name, Item=item)


def _live_tables(stage: Stage) -> set[str]:
    """Return the log tables of the versions that the aliases of all functions lead to."""
    functions = stage.client("lambda")
    found = set()
    for each in deployment.FUNCTIONS:
        qualifier = {} if each.endless else {"Qualifier": "live"}
        asked = {"FunctionName": stage.named(each.name), **qualifier}
        variables = functions.get_function_configuration(**asked)["Environment"]["Variables"]
        found.add(variables["TIDINGS_LOG_TABLE"])
    return found
