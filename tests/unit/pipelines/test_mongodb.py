"""MongoDB as a store: a real one where `TIDINGS_TEST_MONGODB` names it, else one in Java."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import ServerSelectionTimeoutError

from tests.unit.pipelines.messages import RESET, video
from tests.unit.pipelines.real_stores import collection_of
from tidings.client.errors import Unwritten
from tidings.pipelines import MongoDB, mongodb
from tidings.pipelines.messages import Overtaken, WrongPipeline


def opened(url: str, collection: str) -> MongoDB:
    sink = MongoDB(url, collection)
    sink.open("p.documents")
    return sink


def names(url: str, collection: str) -> set[str]:
    return set(collection_of(url, collection))


def test_objects_become_documents(mongodb_url: str) -> None:
    """The batch inserts, updates and deletes, also an unknown object; a repeat of it changes
    nothing."""
    sink = opened(mongodb_url, "made")
    batch = [video("insert", "a", 1, 1), video("insert", "b", 2), video("update", "a", 3, 2)]
    batch += [video("delete", "b", 4), video("leave", "never", 5)]
    for _ in range(2):
        sink.write(batch, 1)
        assert collection_of(mongodb_url, "made") == {"a": batch[2].data}
    sink.close()
    with MongoClient[Any](mongodb_url) as client:
        found = list(client.get_default_database()["made"].find().sort("_id"))
    assert found[0] == {
        "_id": "video/a",
        "version": 3 << 23,
        "namespace": "video",
        "id": "a",
        "ts": "",
        "data": batch[2].data,
        "event_id": batch[2].id,
    }
    assert [set(each) for each in found[1:]] == [{"_id", "version", "gone"}] * 2


def test_what_comes_too_late_changes_nothing(mongodb_url: str) -> None:
    """An older version from any worker replaces neither a changed object nor a deleted one; the
    rest is written.
    """
    sink = opened(mongodb_url, "late")
    sink.write([video("insert", "a", 5, "new"), video("delete", "b", 6)], 1)
    late = [video("insert", name, page, "old") for page, name in enumerate("abc", 1)]
    sink._put([mongodb._document(0, each) for each in late])  # as if the fence were not looked at
    sink.close()
    found = collection_of(mongodb_url, "late")
    assert {name: each["data"] for name, each in found.items()} == {"a": "new", "c": "old"}


def test_before_a_copy_the_documents_go(mongodb_url: str) -> None:
    """They are deleted at their place in the batch, whatever their versions are."""
    sink = opened(mongodb_url, "emptied")
    sink.write([RESET, video("insert", "old", 9)], 1)
    sink.write([video("insert", "older", 9), RESET, video("insert", "new", 1)], 1)
    sink.close()
    assert names(mongodb_url, "emptied") == {"new"}


def test_a_worker_of_mongodb_that_was_overtaken_writes_nothing(mongodb_url: str) -> None:
    """This holds however late its batch is."""
    old, new = opened(mongodb_url, "overtaken"), opened(mongodb_url, "overtaken")
    old.write([video("insert", "a", 1)], 9)
    new.write([video("delete", "a", 2)], 10)
    with pytest.raises(Overtaken, match="a worker later than 9 writes overtaken"):
        old.write([RESET, video("insert", "b", 3)], 9)
    assert names(mongodb_url, "overtaken") == set()
    for sink in (old, new):
        sink.close()


def test_what_is_no_document_is_told_by_its_place(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that is too large, a set, too many bytes; those before it are there."""
    monkeypatch.setattr(mongodb, "DOCUMENT_BYTES", 10_000)
    sink = opened(mongodb_url, "refused")
    for page, (data, said) in enumerate(
        ((1 << 64, "8-byte"), ({1}, "set"), ("x" * 9999, "10,000"))
    ):
        batch = [video("insert", f"a{page}", 1), video("insert", "b", 2, data)]
        with pytest.raises(Unwritten, match=said) as raised:
            sink.write([*batch, video("insert", "c", 3)], 1)
        assert raised.value.index == 1
    sink.close()
    assert names(mongodb_url, "refused") == {"a0", "a1", "a2"}


def test_what_an_index_of_the_owner_refuses(mongodb_url: str) -> None:
    """It fails the batch, and alone the document is identified; it does not count as an older
    version."""
    with MongoClient[Any](mongodb_url) as client:
        client.get_default_database()["unique"].create_index("ts", unique=True)
    sink = opened(mongodb_url, "unique")
    batch = [video("insert", "a", 1), video("insert", "b", 2)]
    with pytest.raises(Exception, match="E11000"):
        sink.write(batch, 1)
    with pytest.raises(Unwritten, match="E11000") as raised:
        sink.write(batch[1:], 1)
    sink.close()
    assert raised.value.index == 0
    assert names(mongodb_url, "unique") == {"a"}


def test_what_mongodb_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs an address with a database and a simple name; no secret is shown; an unreachable
    server is an early error.
    """
    for address in ("host/base", "http://host/base", "mongodb://host"):
        with pytest.raises(WrongPipeline, match="url must be mongodb://user"):
            MongoDB(address)
    with pytest.raises(WrongPipeline, match=r"collection must be .*; not 'a\$'"):
        MongoDB("mongodb://host/base", "a$")
    shown = str(MongoDB("mongodb://me:secret@one:1,two:2/base?replicaSet=x"))
    assert shown == "collection objects at one:1,two:2/base"
    monkeypatch.setattr(mongodb, "FIND_MS", 100)
    with pytest.raises(ServerSelectionTimeoutError) as raised:
        MongoDB("mongodb://me:secret@127.0.0.1:1/base").open("p.documents")
    assert "secret" not in repr(raised.value)
