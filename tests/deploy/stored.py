"""
A feed as the release before this one stored it: `items.json`, every item of a twin of its own.

`python -m tests.deploy` writes it anew, by the code that is here when a version is released.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from httpx_sse import connect_sse
from tidings.local.running import Twin
from tidings.local.store import engine

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ITEMS = Path(__file__).parent / "items.json"
READER, PRODUCER = "the password of readers", "the password of producers"
# They are read years after they were written: nothing may have expired by then.
SETTINGS = ("--leave", "--setting", "TIDINGS_RETENTION_HOURS=1000000")
PATIENCE_S = 60.0
OPERATIONS = (
    {"event": "insert", "type": "video", "id": "a", "parents": ["user/ann"]},
    {"event": "insert", "type": "video", "id": "b", "parents": ["user/bob"]},
    {"event": "insert", "type": "user", "id": "ann"},
    {"event": "update", "type": "video", "id": "a", "parents": ["user/eve"], "data": {"n": 1}},
    {"event": "delete", "type": "video", "id": "b"},
)
CONSUMER, WORKER = "/feeds/main/consumers/copier", {"worker": "w"}

Told = tuple[str, str, str]  # id, event and data of one event


def client(url: str, password: str) -> httpx.Client:
    return httpx.Client(base_url=url, auth=("", password), timeout=PATIENCE_S)


def post(url: str, *operations: Any) -> list[str]:
    """The ids that they were given."""
    with client(url, PRODUCER) as asking:
        answer = asking.post("/ops", json=operations, headers={"Prefer": "return=representation"})
        found: list[str] = answer.raise_for_status().json()["ids"]
        return found


def told(url: str, after: str, until: str) -> list[Told]:
    """What a stream tells that resumes *after*, up to the event *until* or the one of that id."""
    events: list[Told] = []
    headers = {"Last-Event-ID": after}
    with client(url, READER) as asking, connect_sse(asking, "GET", "/ops", headers=headers) as sse:
        for event in sse.iter_sse():
            events.append((event.id, event.event, event.data))
            if until in (event.event, event.id):
                break
    return events


def record(folder: Path) -> dict[str, Any]:
    """What a twin has stored, and what it told of it."""
    with Twin(*SETTINGS, *_passwords(folder)) as twin:
        ids = [post(twin.url, operation)[0] for operation in OPERATIONS]
        with client(twin.url, READER) as asking:
            steers = "", PRODUCER
            asking.put(CONSUMER, json={"from": "oldest"}, auth=steers).raise_for_status()
            lease = (
                asking.post(f"{CONSUMER}/lease", json=WORKER, auth=steers).raise_for_status().json()
            )
            said = {"fence": lease["fence"], "through": ids[1]}
            asking.post(f"{CONSUMER}/ack", json=said, auth=steers).raise_for_status()
        log = told(twin.url, ids[0], ids[-1])
        copy = told(twin.url, "0", "live")
        return {"ids": ids, "log": log, "copy": copy, "tables": _stored(twin.dynamodb_url)}


def _passwords(folder: Path) -> list[str]:
    options = []
    for role, password in (("read", READER), ("ingest", PRODUCER)):
        file = folder / role
        file.write_text(f"{password}\n")
        options += [f"--{role}-password-file", str(file)]
    return options


def _stored(store: str) -> dict[str, Any]:
    asking = engine.tables_client(store)
    return {name: _table(asking, name) for name in asking.list_tables()["TableNames"]}


def _table(asking: DynamoDBClient, name: str) -> dict[str, Any]:
    about = asking.describe_table(TableName=name)["Table"]
    parts = ("KeySchema", "AttributeDefinitions", "StreamSpecification")
    return {
        "about": {part: about[part] for part in parts if part in about},  # type: ignore[literal-required]
        "items": [_written(item) for item in asking.scan(TableName=name)["Items"]],
    }


def restore(store: str, tables: dict[str, Any]) -> None:
    """The tables as they were, in a *store* that has none."""
    asking = engine.tables_client(store)
    for name, table in tables.items():
        asking.create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **table["about"])
        for item in table["items"]:
            asking.put_item(TableName=name, Item=_read(item))


def _written(value: Any) -> Any:
    """Bytes as JSON can say them."""
    match value:
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case dict():
            return {name: _written(each) for name, each in value.items()}
        case list():
            return [_written(each) for each in value]
    return value


def _read(value: Any) -> Any:
    match value:
        case {"base64": str(text)}:
            return base64.b64decode(text)
        case dict():
            return {name: _read(each) for name, each in value.items()}
        case list():
            return [_read(each) for each in value]
    return value


@contextmanager
def continued(store: str) -> Iterator[Twin]:
    """A twin of today's on the tables in *store*."""
    with Twin("--endpoint-url", store, *SETTINGS) as twin:
        yield twin


def load() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ITEMS.read_text())
    return found
