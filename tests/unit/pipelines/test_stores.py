"""Tables, hashes and collections as stores, real ones: what all of them do, and what one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import opensearchpy
import pymysql
import pytest
import redis
from pymongo import MongoClient
from pymongo.errors import ServerSelectionTimeoutError

from tests.unit.pipelines.conftest import needing
from tests.unit.pipelines.messages import RESET, video
from tests.unit.pipelines.real_stores import collection_of, hash_of, rows_of, table_of
from tidings.client.errors import Unwritten
from tidings.pipelines import MongoDB, MySQL, Postgres, Redis, Search, mongodb
from tidings.pipelines.messages import Overtaken, WrongPipeline


class Kind(NamedTuple):
    """A kind of store: the fixture with its address, the store, and its objects by id."""

    fixture: str
    sink: Callable[[str, str], Any]
    objects: Callable[[str, str], dict[str, Any]]


KINDS = [
    Kind("database", Postgres, table_of),
    Kind("mariadb_url", MySQL, rows_of),
    Kind("mongodb_url", MongoDB, collection_of),
    Kind("redis_url", Redis, hash_of),
]


@pytest.fixture(params=[needing(each.fixture, each) for each in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def url(kind: Kind, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(kind.fixture))


@contextmanager
def opened(sink: Any) -> Iterator[Any]:
    sink.open("p.store")
    try:
        yield sink
    finally:
        sink.close()


def test_objects_are_put_and_deleted(kind: Kind, url: str) -> None:
    """The batch inserts, updates and deletes, also an unknown object; a repeat of it changes
    nothing."""
    batch = [video("insert", "a", 1, 1), video("insert", "\u00e4", 2)]
    batch += [video("update", "a", 3, "\u00e4\U0001f600"), video("delete", "\u00e4", 4)]
    batch += [video("leave", "never", 5)]
    with opened(kind.sink(url, "made")) as store:
        for _ in range(2):
            store.write(batch, 1)
            assert kind.objects(url, "made") == {"a": batch[2].data}


def test_before_a_copy_the_objects_go(kind: Kind, url: str) -> None:
    """They are deleted at their place in the batch, whatever their versions are."""
    with opened(kind.sink(url, "emptied")) as store:
        store.write([RESET, video("insert", "old", 9)], 1)
        store.write([video("insert", "older", 9), RESET, video("insert", "new", 1)], 1)
    assert set(kind.objects(url, "emptied")) == {"new"}


def test_a_worker_that_was_overtaken_writes_nothing(kind: Kind, url: str) -> None:
    """This holds however late its transaction is; the later worker continues."""
    with opened(kind.sink(url, "overtaken")) as old, opened(kind.sink(url, "overtaken")) as new:
        old.write([video("insert", "a", 1)], 9)
        new.write([video("delete", "a", 2)], 10)
        with pytest.raises(Overtaken, match=r"worker (10|later than 9) writes overtaken"):
            old.write([RESET, video("insert", "b", 3)], 9)
        assert kind.objects(url, "overtaken") == {}
        new.write([video("insert", "c", 4)], 10)
    assert set(kind.objects(url, "overtaken")) == {"c"}


# For each store: an address with its error, a wrong name with its error, the text of a store, and
# the error if no server is there.
NEEDS = {
    MySQL: (
        (["host/base", "postgresql://host/base", "mysql://host"], "url must be mysql://user"),
        ("a`b", "table must be"),
        ("mysql://me:secret@host:3307/base", "table objects at host/base"),
        ("mysql://me:secret@127.0.0.1:1/base", pymysql.err.OperationalError),
    ),
    MongoDB: (
        (["host/base", "http://host/base", "mongodb://host"], "url must be mongodb://user"),
        ("a$", r"collection must be .*; not 'a\$'"),
        (
            "mongodb://me:secret@one:1,two:2/base?replicaSet=x",
            "collection objects at one:1,two:2/base",
        ),
        ("mongodb://me:secret@127.0.0.1:1/base", ServerSelectionTimeoutError),
    ),
    Redis: (
        (
            ["localhost:6379", "http://host", "redis://"],
            "url must begin with redis or rediss or unix",
        ),
        ("", "key"),
        ("redis://me:secret@host:6379/1", "hash objects at host/1"),
        ("redis://me:secret@127.0.0.1:1", redis.ConnectionError),
    ),
    Search: (
        (["search", "ftp://host", "https://"], "url must begin with"),
        ("", "index"),
        ("https://me:secret@host:9200/x/", "index objects at host/x"),
        ("http://me:secret@127.0.0.1:1", opensearchpy.OpenSearchException),
    ),
}


@pytest.mark.parametrize("sink", NEEDS)
def test_what_a_store_needs(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs an address and a name; no secret is shown; an unreachable server is an early
    error.
    """
    (addresses, rule), (name, rule_of_name), (address, shown), (away, error) = NEEDS[sink]
    for wrong in addresses:
        with pytest.raises(WrongPipeline, match=rule):
            sink(wrong)
    with pytest.raises(WrongPipeline, match=rule_of_name):
        sink(address, name)
    assert str(sink(address)) == shown
    monkeypatch.setattr(mongodb, "FIND_MS", 100)
    with pytest.raises(error) as raised:
        sink(away).open("p.store")
    assert "secret" not in repr(raised.value)


def test_an_option_of_mysql_that_nothing_uses() -> None:
    with pytest.raises(WrongPipeline, match=r"options other than .*: \['compress'\]"):
        MySQL("mysql://host/base?compress=1")


def test_objects_whose_names_look_alike_are_two(mariadb_url: str) -> None:
    """Some of them are equal in a collation."""
    names = ["a", "A", "a ", "\u00e4", "a\u0308"]
    with opened(MySQL(mariadb_url, "alike")) as store:
        store.write([video("insert", name, data=name) for name in names], 1)
    assert set(rows_of(mariadb_url, "alike")) == set(names)


def test_a_batch_is_in_the_rows_or_not(mariadb_url: str) -> None:
    """A name that is too long is not cut off, and takes its batch along; the next one is well."""
    long = video("insert", "b" * 600)
    with opened(MySQL(mariadb_url, "atomic")) as store:
        with pytest.raises(pymysql.err.DataError, match="Data too long"):
            store.write([video("insert", "a"), long], 1)
        assert rows_of(mariadb_url, "atomic") == {}
        with pytest.raises(Unwritten, match="Data too long"):
            store.write([long], 1)  # alone it is known to be at fault
        store.write([video("insert", "a")], 1)
    assert set(rows_of(mariadb_url, "atomic")) == {"a"}


def test_a_server_that_evicts_any_key_is_refused(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If it evicts only keys with an expiry, it is not; a hash that is ours has a warning."""
    with redis.Redis.from_url(redis_url) as server:
        try:
            server.config_set("maxmemory-policy", "allkeys-lru")
            with opened(Redis(redis_url, "unlimited")):
                server.config_set("maxmemory", "100mb")
            with pytest.raises(WrongPipeline, match="-policy allkeys-lru; it would delete"):
                Redis(redis_url, "evicted").open("p.store")
            assert not server.exists("evicted:writers") and not caplog.records
            with opened(Redis(redis_url, "unlimited")):
                assert "maxmemory-policy allkeys-lru" in caplog.text
            server.config_set("maxmemory-policy", "volatile-lru")
            with opened(Redis(redis_url, "evicted")):
                """It opens."""
        finally:
            server.config_set("maxmemory", "0")


def test_what_json_cannot_hold_is_told_by_its_place(redis_url: str) -> None:
    """The messages before it are written, and none after it."""
    data = {"a": 1, "b": float("nan"), "c": 1}
    batch = [video("insert", name, data=each) for name, each in data.items()]
    with (
        opened(Redis(redis_url, "refused")) as store,
        pytest.raises(Unwritten, match="ValueError") as raised,
    ):
        store.write(batch, 1)
    assert (raised.value.index, set(hash_of(redis_url, "refused"))) == (1, {"a"})


def test_a_document_has_its_version_also_when_it_is_gone(mongodb_url: str) -> None:
    """The version is the position in the log; so nothing that comes too late replaces it."""
    batch = [video("insert", "b", 1), video("update", "a", 3, 2)]
    with opened(MongoDB(mongodb_url, "versions")) as store:
        store.write([*batch, video("delete", "b", 4), video("leave", "never", 5)], 1)
    with MongoClient[Any](mongodb_url) as client:
        found = list(client.get_default_database()["versions"].find().sort("_id"))
    assert found[0] == {
        "_id": "video/a",
        "version": 3 << 23,
        "namespace": "video",
        "id": "a",
        "ts": "",
        "data": batch[1].data,
        "event_id": batch[1].id,
    }
    assert [set(each) for each in found[1:]] == [{"_id", "version", "gone"}] * 2


def test_what_comes_too_late_changes_nothing(mongodb_url: str) -> None:
    """An older version from any worker replaces neither a changed object nor a deleted one; the
    rest is written.
    """
    late = [video("insert", name, page, "old") for page, name in enumerate("abc", 1)]
    with opened(MongoDB(mongodb_url, "late")) as store:
        store.write([video("insert", "a", 5, "new"), video("delete", "b", 6)], 1)
        store._put([mongodb._document(0, each) for each in late])  # as if without a fence
    found = collection_of(mongodb_url, "late")
    assert {name: each["data"] for name, each in found.items()} == {"a": "new", "c": "old"}


@pytest.mark.parametrize(
    ("data", "said"),
    [(1 << 64, "8-byte"), ({1}, "set"), ("x" * 9999, "10,000")],
    ids=["number", "set", "bytes"],
)
def test_what_is_no_document_is_told_by_its_place(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch, data: object, said: str
) -> None:
    """A number that is too large, a set, too many bytes; those before it are there."""
    monkeypatch.setattr(mongodb, "DOCUMENT_BYTES", 10_000)
    name = f"refused_{type(data).__name__}"
    batch = [video("insert", "a", 1), video("insert", "b", 2, data), video("insert", "c", 3)]
    with (
        opened(MongoDB(mongodb_url, name)) as store,
        pytest.raises(Unwritten, match=said) as raised,
    ):
        store.write(batch, 1)
    assert (raised.value.index, set(collection_of(mongodb_url, name))) == (1, {"a"})


def test_what_an_index_of_the_owner_refuses(mongodb_url: str) -> None:
    """It fails the batch, and alone the document is identified; it does not count as an older
    version."""
    with MongoClient[Any](mongodb_url) as client:
        client.get_default_database()["unique"].create_index("ts", unique=True)
    batch = [video("insert", "a", 1), video("insert", "b", 2)]
    with opened(MongoDB(mongodb_url, "unique")) as store:
        with pytest.raises(Exception, match="E11000"):
            store.write(batch, 1)
        with pytest.raises(Unwritten, match="E11000") as raised:
            store.write(batch[1:], 1)
    assert (raised.value.index, set(collection_of(mongodb_url, "unique"))) == (0, {"a"})
