"""
The twin with every function under its role: its own processes on DynamoDB Local.

What a function may not is refused inside its process, as AWS would refuse it, and what comes of it
is seen from outside: the laws of docs/PROTOCOL.md hold.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tidings.aws.config.deployment import FUNCTIONS, TABLES
from tidings.core import limits
from tidings.local.options import ACCOUNT, PREFIX, REGION
from tidings.local.running import Twin
from tidings.local.store.tables import name_of

from infra import paths
from tests.conformance.catalogue import Case, cases
from tests.conformance.runner import play
from tests.conformance.scene import Scene
from tests.conformance.target import RESOURCES, Target
from tests.iam import worker
from tests.iam.roles import Place, Roles
from tests.iam.stages import template

pytestmark = [pytest.mark.node, pytest.mark.java]

PLACE = Place(
    region=REGION,
    account=ACCOUNT,
    names={f"Tables{table.name.title()}": name_of(table.name) for table in TABLES},
    prefix=PREFIX,
)
EVERY = 6  # which of the laws are tried here; all of them would take as long as the suite
LAWS = [case for case in cases() if not case.rule.startswith("21.")]  # durable streams: no function

OPERATION = {"event": "update", "type": "video", "id": "x"}
PATIENCE_S = 60.0
CLOCK_S = 150.0  # the sweep, which rings what nothing else has, comes each minute
EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
NO_PAGES = {"Effect": "Deny", "Action": "dynamodb:PutItem", "Resource": f"*/{name_of('log')}"}
# They are reached by S3, by other tables, the outbox or another feed: test_roles.py.
ELSEWHERE = {"correct", "follow-archive", "follow-relay", "forward", "steer"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("roles")
    roles = Roles(template("least"), PLACE)
    policies = {PREFIX + each.name: roles.statements(each.name) for each in FUNCTIONS}
    worker.put_under_roles(made, paths.FUNCTIONS, policies, ACCOUNT)
    return made


@pytest.fixture(scope="module")
def target(folder: Path) -> Iterator[Target]:
    declared = [part for resource in RESOURCES for part in ("--resource", resource)]
    with Twin("--leave", "--functions", str(folder), *declared) as twin:
        yield Target(twin.url.rstrip("/"), twin.ws_url, twin.url.rstrip("/"), "main", alone=True)


@pytest.mark.parametrize("case", LAWS[::EVERY], ids=lambda case: case.id)
def test_law(case: Case, target: Target) -> None:
    """The law holds with no right beside those of the roles."""
    scene = Scene(target, case, f"c{secrets.token_hex(6)}")
    try:
        play(scene)
    finally:
        scene.close()


def not_asked(folder: Path) -> set[str]:
    """The functions that have called nothing of AWS yet."""
    asked = {line.partition(" ")[0].removeprefix(PREFIX) for line in worker.calls(folder)}
    return {each.name for each in FUNCTIONS} - asked


def test_nothing_was_refused(target: Target, folder: Path) -> None:
    """Also of what no client sees: followers, wakes, the schedules; and who asked for anything."""
    for path in ("status", "relays", "config"):
        httpx.get(f"{target.base_url}/{path}", timeout=PATIENCE_S).raise_for_status()
    httpx.post(
        f"{target.base_url}/feeds/main/corrections?through=0",
        content=json.dumps(
            OPERATION | {"id": "amended", "timestamp": "2026-11-21T09:00:00Z", "at": ""}
        ),
        headers={"content-type": "application/x-ndjson"},
        timeout=PATIENCE_S,
    ).raise_for_status()
    for number in range(limits.SUMMARY_PAGES):  # so many that the sweep wakes the index
        operation = OPERATION | {"id": f"summed-up-{number}"}
        httpx.post(target.base_url, json=operation, timeout=PATIENCE_S).raise_for_status()
    ends = time.monotonic() + CLOCK_S
    while not_asked(folder) != ELSEWHERE and time.monotonic() < ends:
        time.sleep(1)

    assert worker.refused(folder) == set()
    assert not_asked(folder) == ELSEWHERE


def test_a_function_without_its_rights_is_refused(folder: Path, tmp_path: Path) -> None:
    """The same twin where `ingest` may not put pages: the post fails, and the log says why."""
    policies = {PREFIX + each.name: [EVERYTHING] for each in FUNCTIONS}
    policies[PREFIX + "ingest"] = [EVERYTHING, {**EVERYTHING, **NO_PAGES}]
    worker.put_under_roles(tmp_path, paths.FUNCTIONS, policies, ACCOUNT)
    with Twin("--functions", str(tmp_path)) as twin:
        answer = httpx.post(twin.url, json=OPERATION, timeout=PATIENCE_S)

    assert answer.status_code == 500
    (found,) = worker.refused(tmp_path)
    assert found.startswith(f"{PREFIX}ingest: dynamodb:PutItem on ") and found.endswith("-log")
