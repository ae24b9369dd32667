"""An owner's table with a stream, in the twin's store, becomes a producer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tidings.server.problems import Problem
from tidings.twin import environment
from tidings.twin.options import Options
from tidings.twin.running import Twin
from tidings.twin.store import engine

VIDEOS = {
    "feed": "videos",
    "type": "video",
    "id": "{{channel}}/{{number}}",
    "parents": ["user/{{owners}}"],
}
KEY = ("channel", "number")


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    capture = f"owners-videos={json.dumps(VIDEOS)}"
    with Twin("--feeds", "main,videos", "--capture", capture) as running:
        yield running


@pytest.fixture(scope="module")
def owner(twin: Twin) -> Any:
    """Makes its table while the twin runs; knows nothing of feeds."""
    client = engine.tables_client(twin.dynamodb_url)
    client.create_table(
        TableName="owners-videos",
        KeySchema=[
            {"AttributeName": "channel", "KeyType": "HASH"},
            {"AttributeName": "number", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "channel", "AttributeType": "S"},
            {"AttributeName": "number", "AttributeType": "N"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    return client


def item(channel: str, number: int, *owners: str) -> dict[str, Any]:
    found: dict[str, Any] = {"channel": {"S": channel}, "number": {"N": str(number)}}
    return found | ({"owners": {"SS": list(owners)}} if owners else {})


def logged(twin: Twin, operations: int) -> list[tuple[str, str, list[str]]]:
    """The log of the feed, as soon as it holds so many."""
    deadline = time.monotonic() + 20
    found: list[dict[str, Any]] = []
    while len(found) < operations:
        assert time.monotonic() < deadline, found
        answer = httpx.get(f"{twin.url}feeds/videos/changes", trust_env=False, timeout=30)
        found = [each["data"] for each in answer.json()["changes"]]
        time.sleep(0.05)
    return [(each["event"], each["id"], each["parents"]) for each in found]


def test_what_is_written_in_a_table_is_told_by_a_feed(twin: Twin, owner: Any) -> None:
    """Inserts, updates and deletes, in order, with parents from before a delete; a bad key waits
    in the outbox with the reason, and holds up nothing."""
    owner.put_item(TableName="owners-videos", Item=item("a", 1, "ann", "bob"))
    owner.put_item(TableName="owners-videos", Item=item("a", 1, "bob"))
    owner.put_item(TableName="owners-videos", Item=item("b/c", 2))
    owner.delete_item(TableName="owners-videos", Key=item("a", 1))

    assert logged(twin, operations=3) == [
        ("insert", "a/1", ["user/ann", "user/bob"]),
        ("update", "a/1", ["user/bob"]),
        ("delete", "a/1", ["user/bob"]),
    ]
    (aside,) = owner.scan(TableName="tidings-local-outbox")["Items"]
    assert aside["feed"] == {"S": "refused#videos"}
    assert "must be in none of them" in aside["reason"]["S"]
    assert json.loads(aside["body"]["S"])["keys"] == {"channel": "b/c", "number": "2"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("videos", "--capture videos: must be TABLE=JSON"),
        ('videos={"type":"v"}', "--capture videos: id: is required"),
        ('videos={"type":"v","id":"{{a}}","feed":"A"}', "--capture videos: feed: must be 1 to 63"),
        ('videos={"type":"v","id":"{{a}}","feed":"b"}', "feed: no such feed here"),
    ],
)
def test_a_mistake_is_told_before_anything_starts(text: str, sentence: str) -> None:
    """In one sentence."""
    with pytest.raises(Problem) as caught:
        environment.check(Options(captures=(text,)))
    assert str(caught.value).startswith(sentence)
