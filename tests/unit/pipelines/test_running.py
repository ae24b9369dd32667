"""Pipelines that run: real stores, kills, and an end that equals the feed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet  # type: ignore[import-untyped]
import pytest

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe
from tests.unit.pipelines.messages import RESET
from tests.unit.pipelines.real_stores import RealStore, table_of
from tidings.client import Poster, Unwritten, follow
from tidings.client.errors import Refused
from tidings.client.retries import DELAY_S_MIN, Backoff
from tidings.pipelines import Call, Feed, Message, Ndjson, Parquet, Pipeline, Postgres, Source
from tidings.pipelines import running as loop
from tidings.pipelines.messages import Overtaken
from tidings.pipelines.running import Progress, Runner

# The kills of each store or source in `make kills`. Each takes some seconds, so CI has a few.
KILLS = 20 if os.environ.get("KILLS") == "all" else 0
FEW_KILLS = 4
TIDINGS = [sys.executable, "-m", "tidings.client.cli.main"]
FILE = """
from tidings.pipelines import {names}

pipeline = Pipeline("copy", Source("{url}", feed="{feed}"))
"""


def post(pipe: Pipe, *operations: tuple[str, str], **fields: Any) -> None:
    made = [{"event": event, "type": "video", "id": name, **fields} for event, name in operations]
    with Poster(pipe.url, pipe.feed) as poster:
        poster.post(made)


class Running:
    """A pipeline in a thread, with the events that it emitted."""

    def __init__(self, pipeline: Pipeline, **options: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.runner = Runner(pipeline, self.events.append, worker="w", **options)
        self.well: bool | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.well = self.runner.run()

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.runner.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def files_of(folder: Path) -> dict[str, Any]:
    """Return the objects in the files."""
    rows = [
        row
        for file in sorted(folder.glob("part-*.parquet"))
        for row in pyarrow.parquet.read_table(file).to_pylist()
    ]
    assert [row["sequence"] for row in rows] == list(range(len(rows)))
    found: dict[str, Any] = {}
    for row in rows:
        if row["op"] == "command":
            found = {}
        elif row["op"] == "delete":
            found.pop(row["key"], None)
        else:
            found[row["key"]] = json.loads(row["data"])
    return found


def lines_of(path: Path) -> dict[str, Any]:
    """Return the objects in the lines; a killed writer may have left a part of a line."""
    found: dict[str, Any] = {}
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            each = json.loads(line)
            if each["op"] == "command":
                found = {}
            elif each["op"] == "delete":
                found.pop(each["data"]["id"], None)
            else:
                found[each["data"]["id"]] = each["data"]
    return found


def written_objects_of(pipe: Pipe) -> dict[str, Any]:
    """Return the objects of a feed that is a store, without the tag of the store."""
    until(lambda: projected(pipe), within_s=60)
    found = objects_of(pipe)
    return {id: {n: each[n] for n in each if n != "tags"} for id, each in found.items()}


def objects_of(pipe: Pipe) -> dict[str, Any]:
    """Return the objects of a copy of the feed."""
    found: dict[str, Any] = {}
    for event in follow(pipe.url, transport="sse", feed=pipe.feed, cursor="0"):
        if event.name == "live":
            return found
        if event.name == "delete":  # from the log after the copy
            found.pop(event.data["id"], None)
        elif event.is_operation:
            found[event.data["id"]] = event.data
    raise AssertionError


def projected(pipe: Pipe) -> bool:
    import httpx

    found = httpx.get(f"{pipe.url}/feeds/{pipe.feed}/status").json()
    return all(each["lag_pages"] == 0 for each in found["followers"] if each["name"] == "state")


def caught_up(pipe: Pipe, *names: str) -> bool:
    """Return True if these consumers exist and have acknowledged everything."""
    found = {each["name"]: each for each in pipe.api.all()}
    there = [found[name] for name in names if name in found]
    done = [each for each in there if each["lag_pages"] == 0 and not each["copying"]]
    return len(done) == len(names)


def test_a_table_follows_the_feed(pipe: Pipe, database: str) -> None:
    """First every object, then what happens to them: put, put again, deleted."""
    post(pipe, ("insert", "a"), ("insert", "b"), data={"title": "\u00e4"})
    until(lambda: projected(pipe), within_s=60)
    sockets = f"{pipe.url.replace('http', 'ws')}/ws"
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, ws_url=sockets))
    pipeline.save("table", Postgres(database, table=pipe.feed))
    with Running(pipeline):
        until(lambda: _table(database, pipe.feed) == {"a", "b"}, within_s=60)
        post(pipe, ("delete", "a"), ("insert", "c"), ("update", "b"), data={"title": "new"})
        until(lambda: _table(database, pipe.feed) == {"b", "c"}, within_s=60)
    assert table_of(database, pipe.feed) == objects_of(pipe)
    assert table_of(database, pipe.feed)["b"]["data"] == {"title": "new"}


def _table(dsn: str, table: str) -> set[str]:
    try:
        return set(table_of(dsn, table))
    except psycopg.errors.UndefinedTable:
        return set()


def test_a_batch_is_in_the_table_or_not(database: str) -> None:
    """A text that PostgreSQL cannot hold takes the others of its batch along."""
    sink = Postgres(database, table="atomic")
    sink.open("p.table")
    names = [Message("insert", "video", "", {"id": name}, "0" * 24) for name in ("a", "b\0")]
    with pytest.raises((ValueError, psycopg.Error)):
        sink.write(names, 1)
    assert table_of(database, "atomic") == {}
    with pytest.raises(Unwritten):
        sink.write(names[1:], 1)  # alone it is known to be at fault
    sink.write(names[:1], 1)
    sink.close()
    assert set(table_of(database, "atomic")) == {"a"}


@contextmanager
def repeated(change: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call *change* again and again until the block ends, in a thread of its own."""
    enough = threading.Event()

    def run() -> None:
        while not enough.wait(every_s):
            change()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def change_some(pipe: Pipe, chance: random.Random) -> None:
    """Objects come, change and go."""
    names = [f"x{chance.randrange(200)}" for _ in range(20)]
    events = [chance.choice(("insert", "update", "delete")) for _ in names]
    post(pipe, *zip(events, names, strict=True), data={"n": chance.random()})


def moved(pipe: Pipe, before: dict[str, Any]) -> bool:
    return positions(pipe) != before


def positions(pipe: Pipe) -> dict[str, Any]:
    """Return the position of each consumer of the feed."""
    return {each["name"]: each["position"] for each in pipe.api.all()}


@contextmanager
def started(command: Sequence[str], output: int) -> Iterator[subprocess.Popen[str]]:
    """Start a pipeline that is killed at the end of the block, however that ends."""
    with subprocess.Popen(command, stdout=output, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run_to_the_end(
    pipe: Pipe, command: Sequence[str], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the events of a pipeline that is stopped when all of its stores are at the end."""
    with started(command, subprocess.PIPE) as process:
        change_some(pipe, random.Random(8))  # this process alone can have read that
        within_s = 90 + 30 * KILLS  # each kill leaves more to read
        until(lambda: caught_up(pipe, *names), within_s=within_s)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        events = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert process.wait(60) == 0
    return events


def killed_at_any_time(pipe: Pipe, kept: Sequence[RealStore], file: Path) -> None:
    """Kill a pipeline by SIGKILL again and again while objects change: at the end nothing is
    missing.

    Some of the stores are copied again. No store reports an error, such as a wrong count.
    """
    saves = [f'pipeline.save("{each.name}", {each.text}, bulk=20)\n' for each in kept]
    names = ", ".join({"Pipeline", "Source", *(each.text.partition("(")[0] for each in kept)})
    file.write_text(FILE.format(names=names, url=pipe.url, feed=pipe.feed) + "".join(saves))
    command = [*TIDINGS, "pipeline", "run", str(file), "--json", "--worker", "w"]
    for each in kept:
        pipe.api.register(f"copy.{each.name}", {"from": each.start})
    chance, output = random.Random(7), file.with_suffix(".json")
    every_s = 0.5 if KILLS else 0.1  # many kills leave little time to write
    with repeated(partial(change_some, pipe, chance), every_s=every_s), output.open("w") as lines:
        for _ in range(KILLS or FEW_KILLS):
            for each in kept:
                if each.start == "copy" and chance.random() < 0.3:
                    with suppress(Refused):  # a copy of it is about to begin
                        pipe.operate(f"copy.{each.name}", "mark", position="copy")
            before = positions(pipe)
            with started(command, lines.fileno()):
                until(partial(moved, pipe, before), within_s=90)
                time.sleep(chance.random() / 2)
    until(lambda: projected(pipe), within_s=60)

    events = run_to_the_end(pipe, command, [f"copy.{each.name}" for each in kept])
    assert [events[0]["kind"], events[-1]["kind"]] == ["boot", "exit"]
    told = [line for line in output.read_text().splitlines() if '"kind":"error"' in line]
    assert told + [each for each in events if each["kind"] == "error"] == []
    wanted = objects_of(pipe)
    assert len(wanted) > 50
    assert [each.name for each in kept if each.objects() != wanted] == []


@pytest.mark.timeout(60 * (KILLS + 10))
def test_killed_at_any_time_every_store_ends_equal_to_the_state(
    pipe: Pipe, spare: Any, stores: Sequence[RealStore], tmp_path: Path
) -> None:
    """Files, a feed and a store of each kind; those of test_search.py take long to start."""
    folder, path = tmp_path / "objects", tmp_path / "lines"
    files = RealStore("files", f"Parquet({str(folder)!r})", partial(files_of, folder))
    lines = RealStore("lines", f"Ndjson({str(path)!r})", partial(lines_of, path))
    with Pipe(pipe.port, next(spare)) as other:
        text = f"Feed({other.url!r}, {other.feed!r})"
        feed = RealStore("feed", text, partial(written_objects_of, other))
        killed_at_any_time(pipe, [files, lines, feed, *stores], tmp_path / "pipeline.py")


def test_a_store_that_fails_stands_still_and_the_others_go_on(pipe: Pipe, tmp_path: Path) -> None:
    """It stops after its attempts; the message is recorded, and the exit code shows it."""

    def refuse(batch: Sequence[Message]) -> None:
        if any(message.key == "1" for message in batch):
            raise ValueError("too long")

    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.save("bad", Call(refuse)).save("good", Ndjson(tmp_path / "lines"))
    pipe.post("aaa")
    with Running(pipeline, attempts=2) as running:
        until(lambda: running.runner.progress[0].state == "failed", within_s=60)
        pipe.post("a")
        until(lambda: caught_up(pipe, "p.good"), within_s=60)
    assert running.well is False
    assert pipe.api.show("p.bad")["failure"]["id"] == pipe.ids[1]
    assert pipe.position("p.bad") == 0
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [line["data"]["id"] for line in lines] == ["0", "1", "2", "3"]
    told = [event for event in running.events if event["kind"] == "error"]
    assert {event["error"] for event in told} == {"too long"}


class Flaky(loop.SourceWorker):
    """Work that does something and then breaks."""

    def __init__(self) -> None:
        self.progress = Progress("flaky")

    def once(self, stopping: threading.Event) -> None:
        self.progress.count(1)
        raise ConnectionError

    def park(self) -> str:
        return ""

    def close(self) -> None: ...


class Waits(threading.Event):
    """Set with the tenth time it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.told_s = list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.told_s.append(timeout or 0)
        if len(self.told_s) == 10:
            self.set()
        return self.is_set()


def test_what_got_farther_is_tried_again_soon() -> None:
    """Earlier failures, over weeks, do not count."""
    waits = Waits()
    loop.run(Flaky(), waits, lambda *_, **__: None, attempts=2)
    assert len(waits.told_s) == 10
    assert max(waits.told_s) <= DELAY_S_MIN


class Refusing:
    """A store that refuses the objects *poison*, or everything while it is away."""

    def __init__(self, *poison: str) -> None:
        self.poison, self.kept, self.away = poison, list[str](), False

    def __call__(self, batch: Sequence[Message]) -> None:
        if self.away:
            raise ConnectionError("away")
        for index, message in enumerate(batch):
            if message.key in self.poison:
                raise Unwritten(index, f"{message.key} is too long")
            self.kept.append(message.key)


def test_what_a_store_refuses_is_parked_and_the_rest_goes_on(pipe: Pipe) -> None:
    """With `park` a message is parked after its attempts, with its error."""
    store = Refusing("1")
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.save("one", Call(store), park=True)
    pipe.post("aaa")
    with Running(pipeline, attempts=2) as running:
        until(lambda: caught_up(pipe, "p.one"), within_s=60)
        assert store.kept == ["0", "2"]
        (parked,) = pipe.api.parked("p.one")
        assert (parked["id"], parked["error"]) == (pipe.ids[1], "1 is too long")
    assert running.well is True
    told = [event["id"] for event in running.events if event["kind"] == "parked"]
    assert told == [pipe.ids[1]]


def test_a_store_that_is_away_parks_nothing(pipe: Pipe) -> None:
    """No message is at fault: the store stops as without `park`."""
    store = Refusing()
    store.away = True
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.save("one", Call(store), park=True)
    pipe.post("a")
    with Running(pipeline, attempts=2) as running:
        until(lambda: running.runner.progress[0].state == "failed", within_s=60)
    assert (running.well, pipe.api.parked("p.one"), pipe.position("p.one")) == (False, [], None)


class Leaving(Call):
    """A store that cannot be opened either while it is *away*."""

    def __init__(self) -> None:
        super().__init__(self._keep)
        self.away, self.refused, self.kept = False, 0, list[str]()

    def open(self, consumer: str) -> None:
        if self.away:
            self.refused += 1
            raise ConnectionError("refused")

    def _keep(self, batch: Sequence[Message]) -> None:
        if self.away:
            raise ConnectionError("reset by peer")
        self.kept += [message.key for message in batch]


def test_a_store_that_was_open_is_waited_for(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for however often the open fails: a server takes time to restart."""
    monkeypatch.setattr(loop, "Backoff", partial(Backoff, 0.02, 0.05))
    store = Leaving()
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest")).save("one", store)
    pipe.post("a")
    with Running(pipeline, attempts=2) as running:
        until(lambda: store.kept == ["0"], within_s=60)
        store.away = True
        pipe.post("a")
        until(lambda: store.refused > 5, within_s=60)
        assert running.runner.progress[0].state == "waiting"
        store.away = False
        until(lambda: store.kept == ["0", "1"], within_s=60)
    assert running.well is True


def test_a_store_that_was_never_open_is_not(pipe: Pipe) -> None:
    """Its address or password may be wrong, which waiting does not fix."""
    store = Leaving()
    store.away = True
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed)).save("one", store)
    with Running(pipeline, attempts=2) as running:
        until(lambda: running.runner.progress[0].state == "failed", within_s=60)
    assert store.refused == 2


def test_in_a_copy_nothing_can_be_parked(pipe: Pipe) -> None:
    """The store stops: the objects of a copy are not entries of the log."""
    post(pipe, ("insert", "a"))
    until(lambda: projected(pipe), within_s=60)
    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed)).save(
        "one", Call(Refusing("a")), park=True
    )
    with Running(pipeline, attempts=2) as running:
        until(lambda: running.runner.progress[0].state == "failed", within_s=60)
    assert (running.well, pipe.api.parked("p.one")) == (False, [])


def test_a_slow_store_does_not_hold_up_another(pipe: Pipe, tmp_path: Path) -> None:
    """Each has a worker of its own."""
    stuck = threading.Event()

    def wait(batch: Sequence[Message]) -> None:
        stuck.wait(60)

    pipeline = Pipeline("p", Source(pipe.url, feed=pipe.feed, start="oldest"))
    pipeline.save("slow", Call(wait)).save("quick", Ndjson(tmp_path / "lines"))
    pipe.post("aaaaa")
    with Running(pipeline):
        until(lambda: caught_up(pipe, "p.quick"), within_s=60)
        assert pipe.position("p.slow") is None
        stuck.set()


def test_into_another_feed_nothing_comes_twice(pipe: Pipe, spare: Any) -> None:
    """A batch that is posted again appends nothing."""
    with Pipe(int(pipe.url.rpartition(":")[2]), next(spare)) as other:
        sink = Feed(other.url, other.feed)
        sink.open("p.feed")
        batch = [Message("insert", "video", "", {"id": str(n)}, f"{n:024x}") for n in range(3)]
        sink.write([Message("command", "", "", {}, "1"), *batch], 1)
        sink.write(batch, 2)
        sink.close()
        found = other.api.log({"from": other.api.log()["oldest"]})["entries"]
    assert [each["data"]["id"] for each in found] == ["0", "1", "2"]


def test_a_feed_loses_what_was_deleted_before_a_copy(pipe: Pipe, spare: Any) -> None:
    """Each copy is posted although it has the ids of an earlier one; objects of other producers
    stay."""
    with Pipe(int(pipe.url.rpartition(":")[2]), next(spare)) as other:
        sink = Feed(other.url, other.feed)
        sink.open("p.feed")
        post(other, ("insert", "theirs"), ("insert", "taken"), data=1)
        copied = [
            Message("insert", "video", "", {"id": each, "tags": ["t"]}, f"{0x80003F:024x}")
            for each in ("a", "b")
        ]
        for _ in range(2):
            sink.write([RESET, *copied], 1)
        log = [Message("insert", "video", "", {"id": "late"}, f"{1:024x}")]
        log += [Message("insert", "video", "", {"id": "taken"}, f"{2:024x}")]
        sink.write(log, 1)
        post(other, ("insert", "taken"), data=2)
        assert set(objects_of(other)) == {"a", "b", "late", "theirs", "taken"}
        sink.write([RESET, copied[0]], 2)
        sink.close()
        until(lambda: projected(other), within_s=60)
        found = objects_of(other)
    assert set(found) == {"a", "theirs", "taken"}
    assert found["a"]["tags"] == ["t", "tidings.pipeline/p.feed"]


def test_a_cut_line_is_ended(tmp_path: Path) -> None:
    """A line that a killed writer left incomplete does not damage the next one."""
    file = tmp_path / "lines"
    file.write_text('{"op":"insert"}\n{"op":"ins')
    sink = Ndjson(file)
    sink.open("p.lines")
    sink.write([Message("delete", "video", "", {"id": "a"}, "0" * 24)], 1)
    sink.close()
    assert json.loads(file.read_text().splitlines()[-1])["op"] == "delete"


def test_two_writers_of_one_folder_cannot_overwrite_each_other(tmp_path: Path) -> None:
    """The second one fails, and continues after the first one's file when it is opened again."""
    made = [Message("insert", "video", "", {"id": "a"}, "0" * 24)]
    one, two = Parquet(tmp_path), Parquet(tmp_path)
    one.open("p")
    two.open("p")
    one.write(made, 1)
    with pytest.raises(Overtaken, match="has written part-0000000001"):
        two.write(made, 2)
    two.open("p")
    two.write(made, 2)
    assert len(list(tmp_path.glob("part-*.parquet"))) == 2
    assert files_of(tmp_path) == {"a": {"id": "a"}}
