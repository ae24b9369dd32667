"""The number of objects that a copy wrote is compared with that in the store: real servers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg
import pytest
import redis
from pymongo import MongoClient

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines.conftest import needing
from tests.unit.pipelines.messages import RESET, video
from tests.unit.pipelines.test_ownership import OURS, _maria, _sql, opened
from tests.unit.pipelines.test_running import Running, caught_up, projected
from tidings.client import Poster
from tidings.pipelines import (
    Message,
    MongoDB,
    MySQL,
    Parquet,
    Pipeline,
    Postgres,
    Redis,
    Search,
    Source,
    copies,
    postgres,
    remap,
)
from tidings.pipelines.copies import CopyCount, CopyDiffers
from tidings.pipelines.running import Progress

ROW = "800000"  # the slot of a row of a copy


def copied(name: str, op: str = "insert", namespace: str = "video") -> Message:
    return Message(op, namespace, "", {"id": name}, f"00000000{1:010x}{ROW}")


class Case(NamedTuple):
    name: str
    batches: list[tuple[int, list[Message]]]  # with the fence of the worker
    found: int | None
    written: int | None  # None if nothing is compared
    fence: int = 1  # of the lease in which the copy ends


FIRST = (1, [RESET]), (1, [copied("a"), copied("b")])
CASES = [
    Case("equal", [*FIRST], 2, 2),
    Case("none", [(1, [RESET])], 0, 0),
    Case("lost", [*FIRST], 1, 2),
    Case("foreign", [*FIRST], 3, 2),
    Case("all lost", [*FIRST], 0, 2),
    Case("a bucket is sent again", [*FIRST, (1, [copied("b"), copied("c")])], 3, 3),
    Case("a copy begins again", [*FIRST, (1, [RESET]), (1, [copied("c")])], 1, 1),
    Case("the next lease", [*FIRST, (2, [copied("c")])], 3, 3, 2),
    Case("a type of its own", [*FIRST, (1, [copied("a", namespace="film")])], 3, 3),
    Case("the store cannot count", [*FIRST], None, None),
    Case("another worker began", [(1, [copied("a")])], 9, None),
    Case("another worker continued", [*FIRST, (3, [copied("c")])], 9, None, 3),
    Case("another worker ended it", [*FIRST], 9, None, 3),
    Case("a function made a deletion", [*FIRST, (1, [copied("a", "delete")])], 9, None),
    Case("a parked message", [*FIRST, (1, [video("insert", "c", 1)])], 9, None),
    Case("names with slashes", [*FIRST, (1, [copied("a", namespace="x/y")])], 9, None),
]


@pytest.mark.parametrize("case", CASES, ids=[each.name for each in CASES])
def test_only_what_is_known_is_compared(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_AGAIN_S", 0)
    count = CopyCount()
    for fence, messages in case.batches:
        count.hold(fence)
        count.add(messages)
    count.hold(case.fence)
    if case.written is None or case.written == case.found:
        count.check("table t", "p.s", lambda: case.found)
        count.check("table t", "p.s", lambda: 99)  # once
        return
    with pytest.raises(CopyDiffers) as raised:
        count.check("table t", "p.s", lambda: case.found)
    message = f"table t has {case.found} objects after a copy that wrote {case.written}"
    assert str(raised.value).startswith(message)
    assert "`tidings consumers mark p.s copy --why TEXT`" in str(raised.value)


def test_a_count_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_AGAIN_S", 0)
    count, found = CopyCount(), iter([0, 1, 2])
    count.hold(1)
    for _, messages in FIRST:
        count.add(messages)
    count.check("table t", "p.s", lambda: next(found))


class Kind(NamedTuple):
    """A kind of store. *lose* removes the video *id*, if it is there, as another program does."""

    fixture: str
    sink: Callable[[str, str], Any]
    lose: Callable[[str, str, str], object]


def _delete(connect: Callable[[str], Any]) -> Callable[[str, str, str], object]:
    def delete(url: str, name: str, id: str) -> object:
        return _sql(connect, url, f"DELETE FROM {name} WHERE id = '{id}' RETURNING id")

    return delete


def _delete_document(url: str, name: str, id: str) -> object:
    with MongoClient[Any](url) as client:
        return client.get_default_database()[name].delete_one({"id": id}).deleted_count


def _delete_field(url: str, name: str, id: str) -> object:
    with redis.Redis.from_url(url) as client:
        return client.hdel(name, f"video/{id}")


def _delete_indexed(url: str, name: str, id: str) -> object:
    return httpx.delete(f"{url}/{name}/_doc/video%2F{id}", timeout=30).is_success


KINDS = [
    Kind("postgresql_url", Postgres, _delete(psycopg.connect)),
    Kind("mariadb_url", MySQL, _delete(_maria)),
    Kind("mongodb_url", MongoDB, _delete_document),
    Kind("redis_url", Redis, _delete_field),
    Kind("opensearch", Search, _delete_indexed),
    Kind(
        "opensearch",
        lambda url, name: Search(url, f"{name}-{{namespace}}"),
        lambda url, name, id: _delete_indexed(url, f"{name}-video", id),
    ),
]


@pytest.fixture(params=[needing(each.fixture, each) for each in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture
def url(kind: Kind, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(kind.fixture))


def post_all(pipe: Pipe, *operations: dict[str, Any]) -> None:
    with Poster(pipe.url, pipe.feed) as poster:
        poster.post([{"event": "insert", **each} for each in operations])


@contextmanager
def copying(pipe: Pipe, sink: Any, during: Callable[[int], Any]) -> Iterator[Progress]:
    """Copy 13 videos, 13 films that become movies, and 13 objects that are left out, in batches of
    5.

    Call *during* with the number of each message. At the end, open the store to be counted.
    """
    kinds = ("video", "film", "other")
    post_all(pipe, *({"type": kinds[at % 3], "id": str(at)} for at in range(40)))
    post_all(pipe, {"event": "delete", "type": "video", "id": "3"})
    until(lambda: projected(pipe), within_s=60)
    numbers = itertools.count()

    def step(message: Message) -> Message | None:
        during(next(numbers))
        return None if message.namespace == "other" else message

    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed))
    pipeline.save("s", sink, step, remap({"film": "movie"}), bulk=5)
    with Running(pipeline) as running:
        (progress,) = running.runner.progress
        yield progress
    sink.assign(pipeline.owner(pipeline.branches[0]))
    sink.open("p.s")


def test_a_copy_of_a_busy_feed_is_no_false_alarm(kind: Kind, url: str, pipe: Pipe) -> None:
    """Objects are inserted, replaced and deleted while they are copied, and just after it."""
    sink, changes = kind.sink(url, pipe.feed), 0

    def change(number: int) -> None:
        nonlocal changes
        if changes < 20:
            post_all(
                pipe,
                {"type": "video", "id": f"new{number}"},
                {"type": "film", "id": str(3 * number + 1)},
                {"event": "delete", "type": "video", "id": str(3 * number)},
            )
            changes += 1

    with copying(pipe, sink, change) as progress:
        until(lambda: changes == 20 and caught_up(pipe, "p.s"), within_s=60)
        assert (progress.state, progress.failures, progress.error) == ("running", 0, "")
    assert sink.count() == 20 + 20
    sink.close()


def test_an_object_that_a_store_lost_is_reported(kind: Kind, url: str, pipe: Pipe) -> None:
    """It is lost before the last batch of the copy; the feed is idle. Another copy repairs it."""
    sink, name = kind.sink(url, pipe.feed), pipe.feed

    def lose(number: int) -> None:
        if number == 38:
            assert any(kind.lose(url, name, str(id)) for id in range(6, 40, 3))

    with copying(pipe, sink, lose) as progress:
        until(lambda: progress.state == "failed", within_s=60)
    assert progress.failures == 1
    assert "has 25 objects after a copy that wrote 26; find" in progress.error
    assert pipe.api.show("p.s")["failure"]["error"] == progress.error
    sink.close()

    pipe.operate("p.s", "mark", position="copy")
    with copying(pipe, sink, lambda number: None):
        until(lambda: caught_up(pipe, "p.s"), within_s=60)
    assert sink.count() == 26
    sink.close()


@pytest.mark.parametrize("fixture", ["postgresql_url", "mariadb_url"])
def test_no_limit_of_a_statement_ends_a_count(
    fixture: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is locked for longer than the limits."""
    url = str(request.getfixturevalue(fixture))
    monkeypatch.setattr(postgres, "_TIMEOUT", b"SET LOCAL statement_timeout = 100")
    is_maria = fixture == "mariadb_url"
    sink: Any = (MySQL if is_maria else Postgres)(url, "limited")
    with opened(sink, OURS) as store:
        store.write([RESET, video("insert", "a", 1)], 1)
        with (_maria if is_maria else psycopg.connect)(url) as other, other.cursor() as cursor:
            if is_maria:
                cursor.execute("SET GLOBAL max_statement_time = 0.1")
            lock = "TABLES limited WRITE" if is_maria else "limited IN ACCESS EXCLUSIVE MODE"
            cursor.execute(f"LOCK {lock}")
            with ThreadPoolExecutor() as threads:
                count = threads.submit(store.count)
                time.sleep(0.5)
                assert not count.done()
                cursor.execute("UNLOCK TABLES" if is_maria else "COMMIT")
                assert count.result(60) == 1
            if is_maria:
                cursor.execute("SET GLOBAL max_statement_time = 0")


def test_files_are_not_counted(tmp_path: Path) -> None:
    assert Parquet(tmp_path).count() is None
