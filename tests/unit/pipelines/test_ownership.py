"""A store touches only what is its own: targets of all kinds, with the same rules."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg
import pyarrow.parquet  # type: ignore[import-untyped]
import pymysql
import pytest
import redis
from click.testing import CliRunner
from pymongo import MongoClient

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines.conftest import needing
from tests.unit.pipelines.messages import RESET, video
from tests.unit.pipelines.test_running import Running, post
from tidings.client.cli.main import main
from tidings.client.errors import Refused
from tidings.pipelines import (
    MongoDB,
    MySQL,
    Parquet,
    Pipeline,
    Postgres,
    Redis,
    Search,
    Source,
    ownership,
)
from tidings.pipelines.messages import WrongPipeline
from tidings.pipelines.ownership import NotOurs, OwnedStore, Owner, mark_in, with_mark
from tidings.pipelines.pipeline import load
from tidings.pipelines.running import Progress

FEED = "main"
OURS = Owner("p.s", FEED)
OTHERS = (Owner("p.t", FEED), Owner("p.s", "other"))


class Kind(NamedTuple):
    """A kind of target. *fixture* is the name of the fixture with its address.

    *fill* writes rows of another program, *rows* returns their number, *unmark* removes what
    an earlier release would not have written, and *again* replaces the target by one of another
    program with 3 rows, if the server can distinguish it from the first one. *backup* returns a
    function that restores the target, with its mark, to its present state.
    """

    fixture: str
    sink: Callable[[str, str], OwnedStore]
    fill: Callable[[str, str, int], None]
    rows: Callable[[str, str], int]
    unmark: Callable[[str, str], None]
    backup: Callable[[str, str], Callable[[], object]]
    again: Callable[[str, str], None] | None = None


def _sql(connect: Callable[[str], Any], address: str, *statements: str) -> Any:
    with connect(address) as connection, connection.cursor() as cursor:
        for each in statements:
            cursor.execute(each)
        found = cursor.fetchall() if cursor.description else None
        connection.commit()
    return found


def _maria(address: str) -> Any:
    socket = address.partition("unix_socket=")[2]
    return pymysql.connect(user="root", unix_socket=socket, database="objects")


_KEY = "PRIMARY KEY (namespace, id))"
_PG = f"(namespace text, id text, parents text[], ts timestamptz, data json, event_id text, {_KEY}"
N = range(3)  # the tables of a store: the objects, the fences and the marks
_BINARY = "namespace varbinary(99), id varbinary(99)"
_MARIA = f"({_BINARY}, ts varchar(40), data json, event_id char(24), {_KEY}"


def _tables(
    fixture: str, sink: Callable[[str, str], OwnedStore], connect: Any, columns: str, unmark: str
) -> Kind:
    def fill(url: str, name: str, rows: int) -> None:
        values = ", ".join(f"('mine', '{at}')" for at in range(rows))
        make = f"CREATE TABLE {name} {columns}"
        _sql(connect, url, make, f"INSERT INTO {name} (namespace, id) VALUES {values}")

    def again(url: str, name: str) -> None:
        _sql(connect, url, f"DROP TABLE {name}")
        fill(url, name, 3)

    def backup(url: str, name: str) -> Callable[[], object]:
        tables = (name, "tidings_writers", "tidings_marks")
        _sql(connect, url, *(f"CREATE TABLE {name}_{at} AS SELECT * FROM {tables[at]}" for at in N))
        statements = ("DELETE FROM {}", "INSERT INTO {} SELECT * FROM {}_{}")
        restore = [each.format(tables[at], name, at) for at in N for each in statements]
        return lambda: _sql(connect, url, *restore)

    return Kind(
        fixture,
        sink,
        fill,
        lambda url, name: int(_sql(connect, url, f"SELECT count(*) FROM {name}")[0][0]),
        lambda url, name: _sql(connect, url, "DROP TABLE tidings_marks", unmark.format(name)),
        backup,
        again,
    )


@contextmanager
def _base(url: str) -> Iterator[Any]:
    with MongoClient[Any](url) as client:
        yield client.get_default_database()


def _fill_collection(url: str, name: str, rows: int) -> None:
    with _base(url) as base:
        base[name].insert_many([{"_id": at, "mine": True} for at in range(rows)])


def _count_collection(url: str, name: str) -> int:
    with _base(url) as base:
        return int(base[name].count_documents({}))


def _unmark_collection(url: str, name: str) -> None:
    with _base(url) as base:
        assert base["tidings_writers"].delete_one({"_id": name}).deleted_count


def _drop_collection(url: str, name: str) -> None:
    with _base(url) as base:
        base.drop_collection(name)
    _fill_collection(url, name, 3)


def _backup_collection(url: str, name: str) -> Callable[[], object]:
    names = (name, "tidings_writers")
    with _base(url) as base:
        found = {each: list(base[each].find()) for each in names}

    def restore() -> None:
        with _base(url) as base:
            for each in names:
                base[each].delete_many({})
                base[each].insert_many(found[each])

    return restore


def _fill_hash(url: str, name: str, rows: int) -> None:
    with redis.Redis.from_url(url) as client:
        client.hset(name, mapping={str(at): "1" for at in range(rows)})


def _count_hash(url: str, name: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.hlen(name))


def _unmark_hash(url: str, name: str) -> None:
    with redis.Redis.from_url(url) as client:
        assert client.hdel(f"{name}:writers", "owner")


def _backup_hash(url: str, name: str) -> Callable[[], object]:
    client: Any = redis.Redis.from_url(url)
    found = {key: client.dump(key) for key in (name, f"{name}:writers")}
    return lambda: [client.restore(key, 0, each, replace=True) for key, each in found.items()]


def _fill_index(url: str, name: str, rows: int) -> None:
    for at in range(rows):
        httpx.put(f"{url}/{name}/_doc/{at}", json={"mine": True}, timeout=30).raise_for_status()


def _count_index(url: str, name: str) -> int:
    httpx.post(f"{url}/{name}/_refresh", timeout=30)
    return int(httpx.get(f"{url}/{name}/_count", timeout=30).json()["count"])


def _unmark_index(url: str, name: str) -> None:
    body: dict[str, Any] = {"_meta": {}}
    httpx.put(f"{url}/{name}/_mapping", json=body, timeout=30).raise_for_status()


def _backup_index(url: str, name: str) -> Callable[[], object]:
    _count_index(url, name)
    mapping = httpx.get(f"{url}/{name}/_mapping", timeout=30).json()[name]
    hits = httpx.get(f"{url}/{name}/_search?version=true", timeout=30).json()["hits"]["hits"]

    def restore() -> None:
        httpx.delete(f"{url}/{name}", timeout=30).raise_for_status()
        httpx.put(f"{url}/{name}", json=mapping, timeout=30).raise_for_status()
        for each in hits:
            place = each["_id"].replace("/", "%2F")
            version = f"version={each['_version']}&version_type=external_gte"
            where = f"{url}/{name}/_doc/{place}?{version}"
            httpx.put(where, json=each["_source"], timeout=30).raise_for_status()

    return restore


def _fill_folder(url: str, name: str, rows: int) -> None:
    Path(url, name).mkdir()
    for at in range(rows):
        Path(url, name, f"mine-{at}.parquet").write_bytes(b"PAR1")


def _count_folder(url: str, name: str) -> int:
    return len(list(Path(url, name).glob("*.parquet")))


def _unmark_folder(url: str, name: str) -> None:
    for path in Path(url, name).glob("*.parquet"):
        table = pyarrow.parquet.read_table(path)
        pyarrow.parquet.write_table(table.replace_schema_metadata(), path)


def _backup_folder(url: str, name: str) -> Callable[[], object]:
    shutil.copytree(Path(url, name), Path(url, f"{name}-copy"))

    def restore() -> None:
        shutil.rmtree(Path(url, name))
        shutil.copytree(Path(url, f"{name}-copy"), Path(url, name))

    return restore


KINDS = [
    _tables("database", Postgres, psycopg.connect, _PG, "COMMENT ON TABLE {} IS NULL"),
    _tables("mariadb_url", MySQL, _maria, _MARIA, "ALTER TABLE {} COMMENT = ''"),
    Kind(
        "mongodb_url",
        MongoDB,
        _fill_collection,
        _count_collection,
        _unmark_collection,
        _backup_collection,
        _drop_collection,
    ),
    Kind("redis_url", Redis, _fill_hash, _count_hash, _unmark_hash, _backup_hash),
    Kind("opensearch", Search, _fill_index, _count_index, _unmark_index, _backup_index),
    Kind(
        "folder",
        lambda url, name: Parquet(Path(url, name)),
        _fill_folder,
        _count_folder,
        _unmark_folder,
        _backup_folder,
    ),
]
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("parquet"))


@pytest.fixture(params=[needing(each.fixture, each) for each in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def url(kind: Kind, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(kind.fixture))


@contextmanager
def opened(sink: OwnedStore, owner: Owner) -> Iterator[Any]:
    sink.assign(owner)
    store: Any = sink
    try:
        store.open(owner.consumer)
        yield store
    finally:
        store.close()


def refused(sink: OwnedStore, owner: Owner, message: str) -> None:
    with pytest.raises(NotOurs, match=message), opened(sink, owner):
        pass


def copy(page: int = 1) -> Sequence[Any]:
    return [RESET, video("insert", "a", page), video("insert", "b", page)]


def is_folder(kind: Kind) -> bool:
    return kind.fixture == "folder"


def test_data_of_an_unknown_origin_are_refused_until_they_are_adopted(kind: Kind, url: str) -> None:
    """The message names target, number and remedy; another number adopts nothing; adoption is
    once."""
    kind.fill(url, "theirs", 4)
    sink = kind.sink(url, "theirs")
    sink.assign(OURS)
    with pytest.raises(NotOurs, match=r"theirs.* 4 .*unknown origin.*--adopt s=4"):
        sink.verdict()
    sink.close()
    for owner in (OURS, Owner("p.s", FEED, adopt=3)):
        refused(sink, owner, r"theirs.* 4 .*unknown origin.*--adopt s=4")
    assert kind.rows(url, "theirs") == 4
    adopting = Owner("p.s", FEED, adopt=4)
    for page in (1, 2):  # the second start has the same option, and another number of rows
        with opened(sink, adopting) as store:
            store.write(copy(page), page)
    assert kind.rows(url, "theirs") == (6 if is_folder(kind) else 2)


def test_an_empty_target_is_marked_and_refused_to_all_others(kind: Kind, url: str) -> None:
    """Consumer and feed must match, also while it is empty; a folder has its mark in its files."""
    with opened(kind.sink(url, "ours"), OURS) as store:
        if is_folder(kind):
            store.write(copy(), 1)
        for other in OTHERS:
            refused(kind.sink(url, "ours"), other, r"consumer p\.s of feed main")
        store.write(copy(), 1)
        refused(kind.sink(url, "ours"), OTHERS[0], f"--adopt t={kind.rows(url, 'ours')}")


def test_a_target_that_an_earlier_release_filled_is_marked_once(kind: Kind, url: str) -> None:
    known = Owner("p.s", FEED, is_known=True)
    with opened(kind.sink(url, "earlier"), OURS) as store:
        store.write(copy(), 1)
    kind.unmark(url, "earlier")
    refused(kind.sink(url, "earlier"), Owner("p.t", FEED), "unknown origin")
    for page in (2, 3):
        with opened(kind.sink(url, "earlier"), known) as store:
            store.write(copy(page), page)
    refused(kind.sink(url, "earlier"), OTHERS[1], r"consumer p\.s")


def test_a_target_that_was_made_again_by_others_is_not_ours(kind: Kind, url: str) -> None:
    """The fence of the consumer, which is still there, is not evidence after the first mark."""
    if kind.again is None:
        pytest.skip("the server has no identity for it")
    with opened(kind.sink(url, "again"), OURS) as store:
        store.write(copy(), 1)
        kind.again(url, "again")
        with pytest.raises(WrongPipeline, match=r"was marked for p\.s, now it has none"):
            store.write(copy(), 1)
    refused(kind.sink(url, "again"), Owner("p.s", FEED, is_known=True), "unknown origin")
    assert kind.rows(url, "again") == 3


def test_a_target_that_lost_what_was_written_is_not_continued(kind: Kind, url: str) -> None:
    """The consumer has acknowledged a copy, so an empty target without a mark was dropped, restored
    or replaced. A new copy fills it; a folder may be emptied by its user.
    """
    known = Owner("p.s", FEED, is_known=True, is_copied=True)
    if is_folder(kind):
        with opened(kind.sink(url, "moved"), known) as store:
            store.write(copy(), 1)
        return
    refused(kind.sink(url, "lost1"), known, r"lost1.* empty.*consumers mark p\.s copy.*adopt s=0")
    with opened(kind.sink(url, "lost1"), replace(known, is_copied=False)) as store:
        store.write(copy(), 1)
    with opened(kind.sink(url, "lost1"), known):
        pass
    within = Owner("p.s", FEED, is_known=True, written=1)  # a part of a copy is written
    refused(kind.sink(url, "lost3"), within, r"lost3.* empty.*consumers mark p\.s copy")
    with opened(kind.sink(url, "lost2"), replace(known, adopt=0)) as store:
        store.write([video("insert", "c", 2)], 1)
    assert (kind.rows(url, "lost1"), kind.rows(url, "lost2")) == (2, 1)


def test_a_store_that_was_put_back_to_its_beginning_is_copied_again(
    pipe: Pipe, redis_url: str
) -> None:
    """It fails with the command that does it; nothing is written before."""
    key = f"back{pipe.feed}"

    def started(count: int) -> Progress:
        pipeline = Pipeline("p", Source(pipe.url, pipe.feed)).save("s", Redis(redis_url, key))
        with Running(pipeline) as running:
            (progress,) = running.runner.progress
            until(lambda: progress.state == "failed" or is_copied(count))
        return progress

    def is_copied(count: int) -> bool:
        return _count_hash(redis_url, key) == count and not pipe.api.show("p.s")["copying"]

    post(pipe, ("insert", "a"))
    assert started(1).state == "stopped"
    with redis.Redis.from_url(redis_url) as client:
        client.delete(key, f"{key}:writers")
    post(pipe, ("insert", "b"))
    assert "`tidings consumers mark p.s copy" in started(2).error
    assert _count_hash(redis_url, key) == 0
    pipe.api.act("p.s", "mark", {"position": "copy", "why": "restored", "by": "test"})
    assert started(2).state == "stopped"


def test_a_target_that_was_restored_with_its_mark_is_copied_again(
    kind: Kind, url: str, pipe: Pipe
) -> None:
    """It has fewer batches than the feed. Messages that a function omits do not count as
    missing."""
    name, restore = f"restored{pipe.feed}", list[Callable[[], object]]()

    def run(*steps: str | None) -> Progress:
        """Run the pipeline until it has each posted object; None takes a backup."""
        sink: Any = kind.sink(url, name)
        omit = [lambda each: None if each.key.startswith("omitted") else each]
        pipeline = Pipeline("p", Source(pipe.url, pipe.feed)).save("s", sink, *omit)
        with Running(pipeline) as running:
            (progress,) = running.runner.progress
            for each in steps:
                if each is None:
                    restore.append(kind.backup(url, name))
                    continue
                post(pipe, ("insert", each))
                until(lambda: progress.state == "failed" or is_at_end())
        return progress

    def is_at_end() -> bool:
        with suppress(Refused):  # it is not registered yet
            found = pipe.api.show("p.s")
            return not (found["lag_pages"] or found["copying"])
        return False

    assert run("a", "b", "omitted1", None, "c").state == "stopped"
    restore[0]()
    kept, failed = kind.rows(url, name), run("d")
    assert (failed.state, kind.rows(url, name)) == ("failed", kept)
    assert "batches, although p.s has written" in failed.error
    assert "`tidings consumers mark p.s copy --why restored`" in failed.error
    pipe.api.act("p.s", "mark", {"position": "copy", "why": "restored", "by": "test"})
    assert run("omitted2").state == "stopped"
    assert kind.rows(url, name) == 4 or is_folder(kind)
    if isinstance(kind.sink(url, name), Redis):  # it is the same for all
        assert run("omitted3").state == "stopped"


def test_a_target_that_is_restored_while_it_is_open_is_not_continued(kind: Kind, url: str) -> None:
    """Once it is taken over, it is continued."""
    if is_folder(kind):
        pytest.skip("a folder is checked when it is opened")
    with opened(kind.sink(url, "during"), OURS) as store:
        store.write(copy(), 1)
        store.count_batches()
        restore = kind.backup(url, "during")
        store.write([video("insert", "c", 2)], 1)
        store.count_batches()
        restore()
        with pytest.raises(WrongPipeline, match=r"2.* batches"):
            store.write([video("insert", "d", 3)], 1)
    behind = replace(OURS, is_known=True, is_copied=True, written=2)
    refused(kind.sink(url, "during"), behind, r"1 of the 2 batches.*adopt s=2")
    for adopt in (2, None):
        with opened(kind.sink(url, "during"), replace(behind, adopt=adopt)) as store:
            assert store.written == 2
    with opened(kind.sink(url, "during"), behind) as store:
        store.write([video("insert", "d", 3)], 1)
    assert kind.rows(url, "during") == 3


def test_an_open_store_empties_nothing_after_another_adopted_it(kind: Kind, url: str) -> None:
    """The mark is checked with each batch; the new owner's fences begin again."""
    if is_folder(kind):
        pytest.skip("a folder is never emptied")
    with opened(kind.sink(url, "lost"), OURS) as old:
        old.write(copy(), 7)
        with opened(kind.sink(url, "lost"), Owner("p.s", OTHERS[1].feed, adopt=2)) as new:
            new.write([video("insert", "c", 2)], 1)
            with pytest.raises(WrongPipeline):
                old.write(copy(), 7)
    assert kind.rows(url, "lost") == 3


def test_a_mark_leaves_the_rest_of_a_comment() -> None:
    other = Owner("p.t", FEED)
    comment = with_mark(with_mark("rows of\nthe shop", OURS.mark), other.mark)
    assert (comment, mark_in(comment)) == (f"rows of\nthe shop\n{other.mark}", other.mark)
    assert mark_in("rows of the shop") == ""


def test_a_role_that_may_not_comment_is_protected_by_a_row(database: str) -> None:
    """The row holds for this table only, not for one that is made again."""
    _sql(
        psycopg.connect,
        database,
        "CREATE ROLE writer LOGIN",
        "GRANT CREATE, USAGE ON SCHEMA public TO writer",
        f"CREATE TABLE granted {_PG}",
        "GRANT ALL ON granted TO writer",
    )
    for name in ("tidings_marks", "tidings_writers"):
        _sql(psycopg.connect, database, f"DROP TABLE IF EXISTS {name}")
    role = database.replace("user=tidings", "user=writer")
    for page in (1, 2):
        with opened(Postgres(role, "granted"), OURS) as store:
            store.write(copy(page), page)
    assert _sql(psycopg.connect, database, "SELECT count(*) FROM granted") == [(2,)]
    refused(Postgres(role, "granted"), OTHERS[0], r"consumer p\.s")
    for name in ("tidings_marks", "tidings_writers"):
        _sql(psycopg.connect, database, f"DROP TABLE {name}")


def test_a_pattern_of_indices_is_no_deletion(opensearch: str) -> None:
    """Only marked indices are emptied; if the index of an object has other documents, the store
    stops."""
    _fill_index(opensearch, "t-customers", 2)
    _fill_index(opensearch, "u-customers", 2)
    with opened(Search(opensearch, "{namespace}"), OURS) as store:
        for page in (1, 2):
            store.write(copy(page), page)
        taken = video("insert", "c", 3)
        taken.namespace = "T-customers"
        with pytest.raises(NotOurs, match=r"index t-customers .* 2 rows of an unknown origin"):
            store.write([taken], 3)
    counted = replace(OURS, is_known=True, is_copied=True, written=5)  # the index was one before
    for page in (4, 5):
        with opened(Search(opensearch, "{namespace}"), counted) as store:
            store.write([video("insert", "a", page)], page)
            assert store.written == 5
    with opened(Search(opensearch, "{namespace}"), OTHERS[0]) as store:
        store.write([RESET], 6)
    counts = [_count_index(opensearch, each) for each in ("t-customers", "u-customers", "video")]
    assert counts == [2, 2, 2]


def test_an_index_must_be_one_index() -> None:
    for index in ("", "*", "a*", "_all", "a,b", "-a", "<a-{now/d}>", "{namespace},b"):
        with pytest.raises(WrongPipeline, match="name of one index"):
            Search("http://127.0.0.1:1", index)


def test_an_index_of_another_program_is_not_taken_for_one_of_an_earlier_release(
    opensearch: str,
) -> None:
    """The consumer has a position, as after a change of the index in the file of the pipeline."""
    _fill_index(opensearch, "shop", 2)
    refused(Search(opensearch, "shop"), Owner("p.s", FEED, is_known=True), "unknown origin")


def test_a_pipeline_says_what_a_start_would_do(pipe: Pipe, tmp_path: Path) -> None:
    """A refused store fails at once, and its consumer is not registered: its position would be
    taken for evidence by the next start.
    """
    file = tmp_path / "pipeline.py"
    file.write_text(
        "from tidings.pipelines import Parquet, Pipeline, Source\n"
        f"pipeline = Pipeline('p', Source({pipe.url!r}, {pipe.feed!r}))\n"
        f"pipeline.save('s', Parquet({str(tmp_path / 'lake')!r}))\n"
    )

    def said() -> tuple[int, str]:
        done = CliRunner().invoke(main, ["pipeline", "test", str(file)])
        return done.exit_code, done.stdout.splitlines()[-1]

    def started(**adopt: int) -> Progress:
        with Running(load(file), adopt=adopt) as running:
            (progress,) = running.runner.progress
            until(lambda: progress.state == "failed" or progress.written > 0)
        return progress

    assert said() == (0, f"s: Parquet files in {tmp_path / 'lake'} {ownership.EMPTY}")
    _fill_folder(str(tmp_path), "lake", 2)
    code, text = said()
    assert code == 3 and text.endswith("`tidings pipeline run --adopt s=2`")
    post(pipe, ("insert", "a"))
    for adopt in ({}, {"s": 1}):
        failed = started(**adopt)
        assert (failed.state, failed.failures) == ("failed", 1) and "2 rows" in failed.error
    with pytest.raises(Refused, match="unknown_consumer"):
        pipe.api.show("p.s")
    for wrong in ("s", "s=", "s=-1", "=1", "other=1"):
        done = CliRunner().invoke(main, ["pipeline", "run", str(file), "--adopt", wrong])
        assert done.exit_code == 2
    assert started(s=2).state == "stopped"
    assert said() == (0, f"s: Parquet files in {tmp_path / 'lake'} {ownership.OURS}")
