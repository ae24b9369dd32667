"""Sources other than feeds: their operations are appended to a feed, and the stores follow it."""

from __future__ import annotations

import gzip
import json
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines.followed import Followed, known
from tests.unit.pipelines.test_running import Running, objects_of, projected
from tidings.client.feed_api import Objects
from tidings.client.poster import Poster
from tidings.pipelines import Call, Files, Message, Pipeline, PostgresTable, Source, Table, files
from tidings.pipelines.documents import Keyed
from tidings.pipelines.ingest_source import BATCH, Batch
from tidings.pipelines.messages import READER, WrongPipeline
from tidings.pipelines.running import Runner


def all_of(reader: Files, state: dict[str, Any] | None = None) -> list[Batch]:
    reader.open("p.r", state or {}, known)
    return list(reader.read())


def ids(batches: Iterable[Batch]) -> list[str]:
    return [each["id"] for batch in batches for each in batch.operations]


def written(path: Path, *names: str) -> str:
    text = "".join(json.dumps({"id": name, "n": 1}) + "\n" for name in names).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return str(path)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_T23_a_file_goes_on_where_it_was_left(tmp_path: Path, name: str) -> None:
    """It is read in batches, each with the reader's position; a file that was read completely is
    not read again.
    """
    names = [f"{number:04}" for number in range(BATCH + 20)]
    path = written(tmp_path / name, *names)
    first, rest = all_of(Files(path, type="video"))
    assert ids([first, rest]) == names
    assert [first.state[path]["mode"], rest.state[path]["mode"]] == ["complete"] * 2
    reader = Files(path, type="video")
    reader.open("p.r", {}, known)
    left = json.loads(json.dumps(next(reader.read()).state))
    assert left[path]["mode"] == "copy"

    again = all_of(Files(path, type="video"), left)
    assert ids(again) == names[BATCH:]
    assert all_of(Files(path, type="video"), dict(again[-1].state)) == []
    written(tmp_path / name, *names, "new")
    assert ids(all_of(Files(path, type="video"), dict(again[-1].state))) == ["new"]


def test_T23_each_file_has_a_standing_of_its_own(tmp_path: Path) -> None:
    """A complete file is not read again, an interrupted one is resumed."""
    one = written(tmp_path / "1.json", "a", "b")
    two = written(tmp_path / "2.json", *map(str, range(BATCH + 1)))
    reader = Files(tmp_path / "*.json", type="video")
    reader.open("p.r", {}, known)
    batches = reader.read()
    next(batches)
    state = json.loads(json.dumps(next(batches).state))
    assert {path: each["mode"] for path, each in state.items()} == {one: "complete", two: "copy"}
    assert ids(all_of(Files(tmp_path / "*.json", type="video"), state)) == [str(BATCH)]


def test_lines_that_are_operations(tmp_path: Path) -> None:
    """No type is given; a missing event is an insert."""
    path = tmp_path / "ops"
    path.write_text('{"type":"a","id":"1"}\n\n{"event":"delete","type":"b","id":"2"}')
    (batch,) = all_of(Files(path))
    assert batch.operations == [
        {"event": "insert", "type": "a", "id": "1"},
        {"event": "delete", "type": "b", "id": "2"},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id":"a"}\nnone\n', r"lines, line 2: not JSON"),
        ("[1]\n", r"lines, line 1: must be a JSON object"),
        ('{"name":"a"}\n', r"a document has no 'id': \['name'\]"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, text: str, said: str) -> None:
    """Nothing of its batch is appended."""
    path = tmp_path / "lines"
    path.write_text(text)
    with pytest.raises(WrongPipeline, match=said):
        all_of(Files(path, type="video"))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(WrongPipeline, match=r"no file matches .*nothing"):
        all_of(Files(tmp_path / "nothing", type="video"))
    with pytest.raises(WrongPipeline, match="at least one"):
        Files()


def replace(path: Path, *names: str) -> None:
    """Put another file with *names* in the place of *path*."""
    path.rename(path.with_name("kept elsewhere"))
    written(path, *names)


OLD = [f"{number:04}" for number in range(700)]  # longer than the blocks that are compared
OTHER = {
    "shorter": ["new"],
    "of the same size": [f"{number:04}" for number in range(1000, 1700)],
    "longer": [f"{number:04}" for number in range(1000, 1800)],
    "changed in the middle, and longer": [*OLD[:300], "1300", *OLD[301:], "new"],
}


@pytest.mark.parametrize("place", [written, replace])
@pytest.mark.parametrize("name", ["in.json", "in.json.gz"])
@pytest.mark.parametrize("names", OTHER.values(), ids=OTHER)
def test_a_replaced_file_is_read_again(
    tmp_path: Path, name: str, names: list[str], place: Any
) -> None:
    """Neither its size nor its inode matters; a file that was only copied is not read again."""
    path = written(tmp_path / name, *OLD)
    left = json.loads(json.dumps(all_of(Files(path, type="video"))[-1].state))
    place(Path(path), *names)
    assert ids(all_of(Files(path, type="video"), left)) == names
    replace(Path(written(tmp_path / name, *OLD)), *OLD, "more")
    assert ids(all_of(Files(path, type="video"), left)) == ["more"]


def test_a_position_of_an_earlier_release_gets_an_identity(tmp_path: Path) -> None:
    """Nothing is read again for it; the file is recognized from then on."""
    path = written(tmp_path / "in.json", *OLD)
    size, lines = Path(path).stat().st_size, len(OLD)
    left = {path: {"mode": "complete", "at": size, "lines": lines, "size": size}}
    (batch,) = all_of(Files(path, type="video"), left)
    assert batch.operations == []
    written(Path(path), *OTHER["longer"])
    assert ids(all_of(Files(path, type="video"), dict(batch.state))) == OTHER["longer"]


def renamed(path: Path) -> None:
    path.rename(f"{path}.1")


def renamed_twice(path: Path) -> None:
    path.rename(f"{path}.1")
    written(path, "between")
    Path(f"{path}.1").rename(f"{path}.2")
    path.rename(f"{path}.1")


def copied(path: Path) -> None:
    shutil.copy(path, f"{path}.1")
    path.write_bytes(b"")


def compressed(path: Path) -> None:
    Path(f"{path}.1.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()


def moved_away(path: Path) -> None:
    (path.parent / "archive").mkdir()
    path.rename(path.parent / "archive" / "a")


@pytest.mark.parametrize(
    ("rotate", "pattern"),
    [
        (renamed, "a.log"),
        (renamed, "a.log*"),
        (renamed_twice, "a.log*"),
        (copied, "a.log"),
        (compressed, "a.log"),
        (moved_away, "a.log"),
        (Path.unlink, "a.log"),
    ],
)
@pytest.mark.parametrize("stopped", [False, True])
def test_a_rotated_file_is_read_to_its_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    rotate: Any,
    pattern: str,
    stopped: bool,
) -> None:
    """The lines of the old file come first. A file that cannot be found after a stop is
    reported."""
    monkeypatch.setattr(files, "LOOK_S", 0)
    path, made = tmp_path / "a.log", lambda: Files(tmp_path / pattern, type="video", follow=True)
    written(path, "0", "1")
    followed = Followed(made, "p.r").start().until_ids("0", "1")
    if stopped:
        followed.close()
    with path.open("a") as file:
        file.write('{"id":"rest"}\n')
    rotate(path)
    written(path, *OTHER["longer"])
    followed.appended.clear()
    if stopped:
        followed.start()
    found = [each["id"] for each in followed.settle().appended]
    lost = stopped and rotate in (moved_away, Path.unlink)
    between = ["between"] if rotate == renamed_twice else []
    assert sorted(found) == sorted([*([] if lost else ["rest"]), *between, *OTHER["longer"]])
    assert lost or found[0] == "rest"
    assert ("a.log, line 2: the file was replaced" in caplog.text) == lost
    with path.open("a") as file:
        file.write('{"id":"last"}\n')
    followed.appended.clear()
    assert [each["id"] for each in followed.settle().appended] == ["last"]
    followed.close()


def test_files_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added lines are read, and new files; an incomplete line is waited for."""
    monkeypatch.setattr(files, "LOOK_S", 0)
    path = tmp_path / "1"
    path.write_text('{"id":"a"}\n{"id":')
    reader = Files(tmp_path / "*", type="video", follow=True)
    reader.open("p.r", {}, known)
    batches = reader.read()
    assert ids([next(batches), next(batches)]) == ["a"]
    with path.open("a") as file:
        file.write('"b"}\n')
    written(tmp_path / "2", "c")
    assert ids(next(batches) for _ in range(3)) == ["b", "c"]


def test_a_pipeline_of_files_ends(pipe: Pipe, tmp_path: Path) -> None:
    """It ends when the files are read and every store has them; a reader's position is not a
    message."""
    written(tmp_path / "in.json", "a", "b")
    heard: list[Message] = []

    def keep(batch: Sequence[Message]) -> None:
        heard.extend(batch)

    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.read("in", Files(tmp_path / "in.json", type="video")).save("heard", Call(keep))
    with Running(pipeline) as running:
        running.thread.join(60)
        assert not running.thread.is_alive()
    assert running.well is True
    assert [message.key for message in heard if not message.is_command] == ["a", "b"]
    assert [each.state for each in running.runner.progress] == ["done", "stopped"]
    until(lambda: projected(pipe), within_s=60)
    with Objects(pipe.url, pipe.feed) as objects:
        found = objects.one(READER, "p.in")
    assert found is not None
    assert found["data"][str(tmp_path / "in.json")]["mode"] == "complete"


class Stopped(Files):
    """A source that is stopped while its first batch is appended."""

    running: Running
    asked = 0

    def read(self) -> Iterator[Batch]:
        yield Batch(Operations(self, [{"event": "insert", "type": "a", "id": "1"}]))
        self.asked += 1
        yield Batch([{"event": "insert", "type": "a", "id": "2"}])
        raise AssertionError


class Operations(list[dict[str, Any]]):
    def __init__(self, reader: Stopped, operations: list[dict[str, Any]]) -> None:
        super().__init__(operations)
        self._reader = reader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._reader.running.runner.stop()
        return super().__iter__()


def test_a_reader_that_is_stopped_hears_that_its_batch_is_in_the_feed(pipe: Pipe) -> None:
    """Otherwise a queue would deliver it again; no later batch is appended."""
    reader = Stopped("none")
    with copying(pipe, reader) as running:
        reader.running = running
        running.thread.join(60)
    assert (reader.asked, running.well) == (1, True)
    until(lambda: projected(pipe), within_s=60)
    assert set(objects_of(pipe)) == {"1"}


def test_nothing_new_is_read_until_every_store_is_at_the_end(pipe: Pipe, tmp_path: Path) -> None:
    """The operations that the feed had at the start are written first."""
    held = threading.Event()
    pipe.post("aaa")
    written(tmp_path / "in.json", "new")
    before = pipe.api.log()["current"]

    def wait(batch: Sequence[Message]) -> None:
        held.wait(60)

    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.read("in", Files(tmp_path / "in.json", type="video")).save("slow", Call(wait))
    with Running(pipeline) as running:
        until(lambda: running.runner.progress[0].state == "standing by", within_s=60)
        threading.Event().wait(2)
        assert pipe.api.log()["current"] == before
        held.set()
        until(lambda: running.runner.progress[0].state == "done", within_s=60)
    assert pipe.api.log()["current"] != before


def test_what_one_reader_appends_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the stores have what the feed held at the start, that is so."""
    answers = iter([False, True, False])
    runner = Runner(Pipeline("p", Source("http://127.0.0.1:1")), lambda event: None)
    monkeypatch.setattr(runner, "_is_at_end", lambda: next(answers))
    assert [runner._has_begun() for _ in range(4)] == [False, True, True, True]


def test_a_batch_that_is_too_large_for_a_page_becomes_several(pipe: Pipe, tmp_path: Path) -> None:
    """Random data does not compress; the reader's position is in the last page."""
    import random

    chance = random.Random(3)
    rows = [{"id": str(n), "noise": chance.randbytes(30_000).hex()} for n in range(40)]
    (tmp_path / "in.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with copying(pipe, Files(tmp_path / "in.json", type="video")) as running:
        running.thread.join(90)
    assert running.well is True
    assert len([name for name in objects_of(pipe) if name != "p.app"]) == 40


class Repeated(Files):
    """A source with rows that return to earlier values."""

    def read(self) -> Iterator[Batch]:
        put = [{"event": "insert", "type": "film", "id": each} for each in ("1", "2", "3")]
        gone = [{"event": "delete", "type": "film", "id": each} for each in ("1", "2", "3")]
        for operations in (put, gone, put, gone[1:], put[1:], gone[1:]):
            yield Batch(operations)
            yield Batch(operations[:2], {"film": {"mode": "complete"}})


def test_a_batch_with_the_content_of_an_earlier_one_is_appended(pipe: Pipe) -> None:
    """This holds even if the position is unchanged, like that of a queue without message ids."""
    with copying(pipe, Repeated("none")) as running:
        running.thread.join(60)
    assert running.well is True
    until(lambda: projected(pipe), within_s=60)
    assert {name for name in objects_of(pipe) if name != "p.app"} == {"1"}


def copying(pipe: Pipe, reader: Files | Table) -> Running:
    """Return a pipeline from *reader* to the feed, with a store that keeps nothing."""
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed))
    return Running(pipeline.read("app", reader).save("out", Call(lambda batch: None)))


def make_table(dsn: str, table: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(
            f"CREATE TABLE {table} (id bigint PRIMARY KEY, title text, seen timestamptz,"
            " price numeric, ok boolean, tags text[], more jsonb, raw bytea, big text)"
        )


def do(dsn: str, *statements: str) -> None:
    """Run the statements in one transaction."""
    with psycopg.connect(dsn) as connection:
        for statement in statements:
            connection.execute(statement)


def test_T23_a_table_is_copied_then_followed(pipe: Pipe, database: str) -> None:
    """A copied row and one from the log have the same form, and changes of keys are followed."""
    table = pipe.feed
    make_table(database, table)
    row = "'2026-01-02 03:04:05+00', 1.50, true, '{a,b}', '{\"x\": [1]}', '\\x00ff'"
    do(database, f"INSERT INTO {table} VALUES (1, 'one', {row}), (2, 'two', {row})")
    with copying(pipe, Table(database, table, type="video", slot=table)) as running:
        until(lambda: set(objects_of(pipe)) >= {"1", "2"}, within_s=60)
        do(
            database,
            f"INSERT INTO {table} VALUES (3, 'three', {row})",
            f"UPDATE {table} SET title = 'zwei' WHERE id = 2",
            f"UPDATE {table} SET id = 10 WHERE id = 1",
            f"INSERT INTO {table} (id) VALUES (4)",
            f"DELETE FROM {table} WHERE id = 4",
        )
        until(lambda: set(objects_of(pipe)) - {"p.app"} == {"10", "2", "3"}, within_s=60)
        found = objects_of(pipe)
        assert found["3"]["data"] == {**found["2"]["data"], "id": 3, "title": "three"}
        assert found["2"]["data"] == {
            "id": 2,
            "title": "zwei",
            "seen": "2026-01-02T03:04:05+00:00",
            "price": "1.50",
            "ok": True,
            "tags": ["a", "b"],
            "more": {"x": [1]},
            "raw": "AP8=",
            "big": None,
        }
    assert running.well is True


def test_a_large_value_that_did_not_change_is_kept(pipe: Pipe, database: str) -> None:
    """PostgreSQL leaves it out of a change of other columns."""
    table = pipe.feed
    make_table(database, table)
    do(database, f"ALTER TABLE {table} ALTER big SET STORAGE EXTERNAL")
    with copying(pipe, Table(database, table, slot=table)):
        until(lambda: "p.app" in objects_of(pipe), within_s=60)
        do(database, f"INSERT INTO {table} (id, big) VALUES (1, repeat('x', 20000))")
        do(database, f"UPDATE {table} SET title = 'new'")
        until(
            lambda: objects_of(pipe).get("1", {}).get("data", {}).get("title") == "new", within_s=60
        )
    assert objects_of(pipe)["1"]["data"]["big"] == "x" * 20_000
    assert objects_of(pipe)["1"]["type"] == table


def test_a_truncated_table_has_no_objects(pipe: Pipe, database: str) -> None:
    """Objects of other types stay."""
    table = pipe.feed
    make_table(database, table)
    do(database, f"INSERT INTO {table} (id) SELECT generate_series(1, 30)")
    pipe.post("a")
    with copying(pipe, Table(database, table, type="video", slot=table)):
        until(lambda: len(objects_of(pipe)) == 32, within_s=60)
        do(database, f"INSERT INTO {table} (id) VALUES (99)", f"TRUNCATE {table}")
        do(database, f"INSERT INTO {table} (id) VALUES (100)")
        until(lambda: set(objects_of(pipe)) == {"0", "p.app", "100"}, within_s=60)


def test_a_slot_is_of_one_feed(database: str) -> None:
    """Two readers of it would each miss the changes of the other; a lost slot means a new copy."""
    make_table(database, "shared")
    first = Table(database, "shared", slot="shared")
    first.open("p.r", {}, known)
    batches = first.read()
    (said, copied) = (next(batches).state, next(batches).state)
    assert copied["shared"].items() > {"mode": "complete", "slot": "shared", "key": ["id"]}.items()
    with pytest.raises(WrongPipeline, match="the slot shared exists, but not for this feed"):
        Table(database, "shared", slot="shared").open("p.r", {}, known)
    for state in (said, copied):
        again = Table(database, "shared", slot="shared")
        again.open("p.r", state, known)
        again.close()
    do(database, "SELECT pg_drop_replication_slot('shared')")
    again = Table(database, "shared", slot="shared")
    again.open("p.r", copied, known)
    assert next(again.read()).state["shared"]["mode"] == "copy"
    for each in (first, again):
        each.close()


def test_what_a_table_needs(database: str) -> None:
    """A simple name and a key."""
    for table in ("a b", "x;y", ""):
        with pytest.raises(WrongPipeline, match="table must be"):
            Table(database, table)
    with pytest.raises(WrongPipeline, match="slot must be"):
        Table(database, "videos", slot="A")
    assert str(Table("postgresql://me:secret@host/db", "videos")) == "table videos at host/db"


@pytest.mark.parametrize(
    ("count", "rows", "options", "gone"),
    [
        (20, 0, {}, None),  # an empty database, or the wrong one
        (200, 100, {}, None),
        (11, 0, {}, None),
        (10, 0, {}, 10),  # a small table
        (200, 180, {}, 20),  # a tenth
        (200, 179, {}, None),
        (200, 100, {"max_deletes": 99}, None),
        (200, 100, {"max_deletes": 100}, 100),
    ],
)
def test_many_deletions_of_a_copy_are_confirmed(
    count: int, rows: int, options: dict[str, Any], gone: int | None
) -> None:
    """The error has their number; a statement in the log that removes all rows is enough."""
    keyed = Keyed("videos", "id", **options)

    def deletions(*, is_logged: bool = False) -> int:
        ids = dict.fromkeys(map(str, range(count)), 0)
        pages = [[{"id": each} for each in range(rows)]]
        found = keyed.missing(lambda _: ids, lambda: pages, is_logged=is_logged)
        return sum(len(each.operations) for each in found)

    assert deletions(is_logged=True) == count - rows
    if gone is not None:
        assert deletions() == gone
        return
    rule = f"{count - rows:,} of {count:,} objects .* give max_deletes={count - rows}"
    with pytest.raises(WrongPipeline, match=rule):
        deletions()


def test_a_copy_deletes_only_objects_of_its_reader(database: str, pipe: Pipe) -> None:
    """Objects of the same type that other producers have posted stay."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE owned (id int PRIMARY KEY, v text)")
        connection.execute("INSERT INTO owned VALUES (1, 'one'), (2, 'two')")
        pipe.post("x")
        theirs = {"event": "insert", "type": "owned", "data": None}
        with Poster(pipe.url, pipe.feed) as poster:
            poster.post([{**theirs, "id": "theirs"}])
        pipeline = Pipeline("own", Source(pipe.url, feed=pipe.feed))
        pipeline.read("r", PostgresTable(database, "owned", slot="owned")).save("s", Call(print))

        def ids() -> set[str]:
            with Objects(pipe.url, pipe.feed) as objects:
                return {each["id"] for each in objects.all("owned")}

        with Running(pipeline):
            until(lambda: ids() == {"1", "2", "theirs"}, within_s=60)
            connection.execute("DROP TABLE owned")
            connection.execute("CREATE TABLE owned (id int PRIMARY KEY, v text)")
            connection.execute("INSERT INTO owned VALUES (2, 'two'), (3, 'three')")
            until(lambda: ids() == {"2", "3", "theirs"}, within_s=60)
        connection.execute("SELECT pg_drop_replication_slot('owned')")
