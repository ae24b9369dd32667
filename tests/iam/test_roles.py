"""Every function, doing all that it does, under the policies of its own role.

The policies are those of the synthesised templates. The requests signed with the role are compared
with them: DynamoDB, S3, functions that are woken, messages to connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest
from botocore.awsrequest import AWSRequest

from tests.functions.cloud import Cloud, restart
from tests.iam.roles import Call, Place, Roles, allowed, calls_of, covers, privileges
from tests.iam.scenes import MORE, SCENES, Requests, Scene, record_requests
from tests.iam.signing import signatures
from tests.iam.stages import KINDS, deployed, template
from tests.iam.unused import excused
from tidings.aws.config.deployment import CAPTURE, FUNCTIONS, TABLES

pytestmark = pytest.mark.node

ALL = [each.name for each in (*FUNCTIONS, CAPTURE)]
PLACE = Place(
    region="eu-west-1",
    account="123456789012",
    names={f"Tables{table.name.title()}": table.name for table in TABLES}
    | {"ArchiveBucket": "kept", "SyncsBucket": "syncs", "SeatsTable": "seats"},
    prefix="tidings-dev-",
)
SCENE_IDS = [(name, at) for name in ALL for at in range(1 + len(MORE.get(name, ())))]


@dataclass
class Recorder:
    """Everything that is signed from `start_recording` on."""

    calls: set[Call] = field(default_factory=set)
    on: bool = False

    def see(self, service: str, region: str, request: AWSRequest) -> None:
        if self.on:
            self.calls.update(calls_of(service, region, PLACE.account, request))

    def start_recording(self) -> Requests:
        self.on = True
        return record_requests()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    found = Recorder()
    with signatures(found.see):
        yield found


@cache
def roles_of(kind: str) -> Roles:
    return Roles(template(kind), PLACE)


@pytest.fixture(scope="module")
def used() -> dict[tuple[str, int], set[Call]]:
    """The calls of each scene; `test_function_stays_within_its_role` fills it."""
    return {}


def scene_of(name: str, at: int) -> Scene:
    scenes: tuple[Scene, ...] = (SCENES[name], *MORE.get(name, ()))
    return scenes[at]


@pytest.mark.parametrize(("name", "at"), SCENE_IDS, ids=[f"{n}-{at}" for n, at in SCENE_IDS])
def test_function_stays_within_its_role(
    cloud: Cloud,
    recorder: Recorder,
    used: dict[tuple[str, int], set[Call]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    at: int,
) -> None:
    """In the least that a stage may be and in one with all there is; and it did ask for things."""
    scene_of(name, at)(monkeypatch, recorder.start_recording)
    restart()

    assert recorder.calls
    for kind in KINDS:
        roles = roles_of(kind)
        refused = {
            str(each) for call in recorder.calls for each in roles.refusals(deployed(name), call)
        }
        assert not refused, kind
    used[name, at] = recorder.calls


@pytest.mark.parametrize("name", ALL)
def test_role_holds_nothing_that_its_function_does_not_use(
    used: dict[tuple[str, int], set[Call]], name: str
) -> None:
    """Each action on each resource is used by a scene above, or there is a reason."""
    scenes = [each for each in SCENE_IDS if each[0] == name]
    if not used.keys() >= {*scenes}:
        pytest.skip("needs the calls of all scenes of the function, which did not run before")
    calls = set[Call]().union(*(used[each] for each in scenes))
    roles = roles_of("least")
    idle = {
        f"{action} on {resource}"
        for statement in roles.statements(deployed(name))
        for action, resource in privileges(statement)
        if not excused(name, action, resource)
        and not any(
            covers({**statement, "Action": action, "Resource": resource}, call) for call in calls
        )
    }

    assert not idle


@pytest.mark.parametrize("name", [each.name for each in FUNCTIONS if each.archive == "read"])
def test_a_part_that_is_gone_is_no_refusal(name: str) -> None:
    """S3 answers 404 only to callers that may list the bucket, and checks no prefix for that."""
    roles = roles_of("whole")

    assert allowed(roles.statements(name), Call("s3:ListBucket", "arn:aws:s3:::kept"))


def test_a_call_beyond_the_role_is_refused() -> None:
    """Another table, action or function; a read of the key through another service."""
    roles = roles_of("whole")
    at = f"arn:aws:dynamodb:{PLACE}:table"
    inside = Call("dynamodb:PutItem", f"{at}/log")
    key = roles.implied(inside)[0]
    elsewhere = Call(key.action, key.resource, {"kms:viaservice": ("s3.eu-west-1.amazonaws.com",)})

    assert roles.refusals("ingest", inside) == []
    for outside in (
        Call("dynamodb:PutItem", f"{at}/state"),
        Call("dynamodb:PutItem", f"{at}/log-of-somebody"),
        Call("dynamodb:DeleteItem", f"{at}/log"),
        Call("dynamodb:?", f"{at}/log"),
        Call("lambda:InvokeFunction", f"arn:aws:lambda:{PLACE}:function:tidings-dev-sweep"),
        Call("secretsmanager:GetSecretValue", "*"),
        elsewhere,
    ):
        assert roles.refusals("ingest", outside)[0] == outside
