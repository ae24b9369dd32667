"""MongoDB as a source: a real one where `TIDINGS_TEST_MONGODB` names it, else one in Java."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Decimal128, ObjectId
from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient

from tests.unit.pipelines.followed import Followed
from tests.unit.pipelines.test_broker_sources import opened, take_operations
from tidings.pipelines import MongoCollection, mongodb
from tidings.pipelines.ingest_source import BATCH
from tidings.pipelines.messages import WrongPipeline


class Collection:
    def __init__(self, url: str, name: str) -> None:
        self.url, self.name, self.readers = url, name, list[MongoCollection]()
        self.client = MongoClient[Any](url)
        self.films = self.client.get_default_database()[name]

    def reader(self, **options: Any) -> MongoCollection:
        self.readers.append(MongoCollection(self.url, self.name, type="film", **options))
        return self.readers[-1]


@pytest.fixture
def collection(mongodb_url: str, request: pytest.FixtureRequest) -> Iterator[Collection]:
    made = Collection(mongodb_url, request.node.name)
    yield made
    for reader in made.readers:
        reader.close()
    made.client.close()


def ids(operations: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["event"], each["id"]) for each in operations]


def test_a_collection_is_copied_then_followed(collection: Collection) -> None:
    """A copied document and one from the stream have the same form."""
    name = ObjectId()
    document = {"price": Decimal128("1.50"), "seen": datetime(2026, 1, 2, tzinfo=UTC), "raw": b"\0"}
    collection.films.insert_one({"_id": name, **document})
    batches = opened(collection.reader())
    copied, state = take_operations(batches, 1)
    assert copied == [
        {
            "event": "insert",
            "type": "film",
            "id": str(name),
            "data": {
                "_id": str(name),
                "price": "1.50",
                "seen": "2026-01-02T00:00:00",
                "raw": "AA==",
            },
        }
    ]
    assert state["film"]["mode"] == "copy"
    assert next(batches).state["film"]["mode"] == "complete"
    collection.films.insert_one({"_id": "b", **document})
    told = take_operations(batches, 1)[0]
    while told[-1]["id"] != "b":
        told = take_operations(batches, 1)[0]
    assert told[-1]["data"] == {**copied[0]["data"], "_id": "b"}


def test_a_stream_goes_on_where_it_was_left(collection: Collection) -> None:
    """It resumes after the position in the feed, including changes since the copy began."""
    batches = opened(collection.reader())
    _, state = take_operations(batches, 0)
    state = state or next(batches).state
    collection.films.insert_many([{"_id": number} for number in range(3)])
    collection.films.replace_one({"_id": 1}, {"n": 1})
    found, left = take_operations(
        opened(collection.reader(), state), 4
    )  # killed before it returned any
    assert ids(found) == [("insert", "0"), ("insert", "1"), ("insert", "2"), ("update", "1")]
    assert found[-1]["data"] == {"_id": 1, "n": 1}
    collection.films.delete_one({"_id": 2})
    found, _ = take_operations(opened(collection.reader(), left), 1)
    assert ids(found) == [("delete", "2")]


def test_a_copy_that_was_cut_off_begins_anew(collection: Collection) -> None:
    """The stream also starts again at its first time: deletions from that time are found."""
    collection.films.insert_many([{"_id": number} for number in range(BATCH + 20)])
    copied, left = take_operations(opened(collection.reader()), 1)
    assert len(copied) == BATCH
    collection.films.delete_one({"_id": 0})
    batches = opened(collection.reader(), left)
    assert len(take_operations(batches, BATCH + 19)[0]) == BATCH + 19
    assert next(batches).state["film"]["time"] == left["film"]["time"]
    found = take_operations(batches, 1)[0]
    while found[-1]["event"] != "delete":
        found += take_operations(batches, 1)[0]
    assert found[-1]["id"] == "0"


def test_a_quiet_collection_says_where_it_is(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An oplog forgets what is older."""
    batches = opened(collection.reader())
    next(batches)
    collection.films.insert_one({"_id": 1})
    _, left = take_operations(batches, 1)
    monkeypatch.setattr(mongodb, "SAID_S", 0)
    quiet = next(batches)
    assert (quiet.operations, quiet.state) == ([], left)


def test_a_change_that_is_unknown(collection: Collection) -> None:
    """End the reader; a document that is gone when it is looked up, is deleted."""
    reader = collection.reader()
    with pytest.raises(WrongPipeline, match="the change 'reshard' is unknown"):
        reader._operation({"operationType": "reshard"})
    changed = {"operationType": "update", "documentKey": {"_id": 7}, "fullDocument": None}
    assert reader._operation(changed) == {"event": "delete", "type": "film", "id": "7"}


@pytest.fixture
def followed(collection: Collection) -> Iterator[Followed]:
    made = Followed(lambda: MongoCollection(collection.url, collection.name, type="film"))
    yield made
    made.close()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_collection_that_is_dropped(
    collection: Collection, followed: Followed, is_killed: bool
) -> None:
    """Delete its objects; the documents of one that is made again are read."""
    collection.films.insert_many([{"_id": number} for number in range(3)])
    followed.start().until(lambda: followed.state.get("film", {}).get("mode") == "complete")
    collection.films.drop()
    collection.films.insert_one({"_id": 7})
    if is_killed:  # in the copy that follows
        followed.until(lambda: followed.state["film"]["mode"] == "copy")
        followed.start()
    followed.until_ids("7")
    collection.films.insert_one({"_id": 8})
    followed.until_ids("7", "8")


def test_values_that_python_cannot_hold(collection: Collection, followed: Followed) -> None:
    """A time after the year 9999 is text, and keys of several fields are different objects."""
    far = DatetimeMS(1 << 60)
    keys: list[Any] = [{"a": "x/y", "b": "z"}, {"a": "x", "b": "y/z"}]
    collection.films.insert_one({"_id": keys[0], "at": far})
    followed.start().until(lambda: followed.state.get("film", {}).get("mode") == "complete")
    collection.films.insert_one({"_id": keys[1], "at": far})
    followed.until_ids('{"a": "x/y", "b": "z"}', '{"a": "x", "b": "y/z"}')
    assert {each["at"] for each in followed.objects.values()} == {f"DatetimeMS({1 << 60})"}


def test_what_a_collection_needs(collection: Collection) -> None:
    """An address, and a replica set; without one it can be copied."""
    with pytest.raises(WrongPipeline, match="url must be mongodb://user"):
        MongoCollection("mongodb://host", "films")
    shown = str(MongoCollection("mongodb://me:s3cret@host/base", "films"))
    assert shown == "collection films at host/base"
    collection.films.insert_one({"_id": 1})
    assert [ids(each.operations) for each in opened(collection.reader(follow=False))] == [
        [("insert", "1")],
        [],
    ]
    with pytest.raises(WrongPipeline, match="must be in a replica set"):
        collection.reader()._time(None)
