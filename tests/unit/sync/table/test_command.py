"""`tidings sync table` against PostgreSQL and a server, while others write, and killed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.wire import until
from tests.docs.test_commands import fenced
from tests.unit.lineage.conftest import receiver
from tests.unit.lineage.receiver import Receiver
from tests.unit.sync.table.test_postgres import do
from tidings.client.cli.main import main
from tidings.client.feed_api import FeedApi, Objects
from tidings.client.poster import Poster
from tidings.core.model.timestamps import to_ms
from tidings.server.running import Server

__all__ = ["receiver"]
GUIDE = Path(__file__).parents[4] / "docs/guides/SYNC.md"
GRACE_S = 0.5
PROMPT = ["--grace", str(GRACE_S)]
LAG_S = 0.1  # at most, from a commit until it is sent
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def arguments(database: str, table: str, server: Server, feed: str, *more: str) -> list[str]:
    where = ["--url", server.url, "--feed", feed, "--type", "video"]
    return ["sync", "table", database, table, *where, *PROMPT, "--json", *more]


def sync(database: str, table: str, server: Server, feed: str, *more: str) -> Result:
    return CliRunner().invoke(main, arguments(database, table, server, feed, *more))


def done(result: Result) -> dict[str, Any]:
    """Return the counts of the result that are not 0."""
    assert result.exit_code == 0, result.output
    return {name: count for name, count in json.loads(result.stdout).items() if count}


def post(server: Server, feed: str, *operations: Mapping[str, Any]) -> None:
    with Poster(server.url, feed) as poster:
        poster.post_lines([json.dumps({"type": "video", **each}).encode() for each in operations])


def operation(id: object, event: str = "update", **fields: Any) -> dict[str, Any]:
    return {"event": event, "id": str(id), "timestamp": EARLY, **fields}


def objects(server: Server, feed: str) -> dict[str, dict[str, Any]]:
    """Return the objects of the state, which a sync has waited for."""
    with Objects(server.url, feed) as stored:
        return {each["id"]: dict(each) for each in stored.all("video")}


def told(server: Server, feed: str) -> list[dict[str, Any]]:
    """Return the operations of the log in their order, each with its event."""
    entries: list[dict[str, Any]] = []
    with FeedApi(server.url, feed) as api:
        end = api.ask("GET", "log")
        at = end["oldest"]
        while at is not None:
            some = api.ask("GET", "log", query={"from": at, "to": end["current"], "limit": "1000"})
            new = some["entries"] if not entries else some["entries"][1:]
            entries += new
            at = entries[-1]["id"] if new else None
    return [each["data"] | {"event": each["event"]} for each in entries]


def make(database: str, table: str, *ids: int) -> None:
    values = ", ".join(f"({id}, '{EARLY}', 'v{id}')" for id in ids)
    do(
        database,
        f"CREATE TABLE {table} (id bigint PRIMARY KEY, changed timestamptz, title text)",
        *([f"INSERT INTO {table} VALUES {values}"] if ids else []),
    )


def test_a_feed_is_made_to_agree(database: str, table: str, server: Server, feed: str) -> None:
    """Rows that the feed lacks, older objects, and objects without a row are corrected; a dry run
    counts them, a second run finds none.
    """
    make(database, table, *range(1, 21))
    post(server, feed, *(operation(id) for id in (*range(2, 21), 99)), operation(3, "delete"))
    post(server, feed, {"event": "update", "type": "other", "id": "1"})
    do(database, f"UPDATE {table} SET changed = '{LATE}' WHERE id IN (10, 11)")
    planned = {"rows": 20, "objects": 19, "creates": 2, "updates": 2, "deletes": 1}
    options = "--changed", "changed", "--chunk", "7"
    until(lambda: len(objects(server, feed)) == planned["objects"])  # else some differ for a moment

    assert done(sync(database, table, server, feed, *options, "--dry-run")) == planned
    assert len(told(server, feed)) == 22
    assert done(sync(database, table, server, feed, *options)) == planned | {
        "objects": 21,
        "applied": 5,
    }
    found = objects(server, feed)
    assert sorted(found, key=int) == [str(id) for id in range(1, 21)]
    assert [id for id, each in found.items() if each["timestamp"] == LATE] == ["10", "11"]
    assert done(sync(database, table, server, feed, *options)) == {"rows": 20, "objects": 20}


def test_rows_are_compared_by_what_they_say(
    database: str, table: str, server: Server, feed: str
) -> None:
    """Their columns are the data; the posts of an owner with the same data agree."""
    make(database, table, 1, 2)
    assert done(sync(database, table, server, feed, "--with-data"))["creates"] == 2
    do(database, f"UPDATE {table} SET title = 'new' WHERE id = 2")
    counts = {"rows": 2, "objects": 2, "updates": 1, "applied": 1}
    assert done(sync(database, table, server, feed, "--with-data")) == counts
    data = {"id": 2, "changed": "2026-01-01T00:00:00+00:00", "title": "new"}
    assert objects(server, feed)["2"]["data"] == data
    assert done(sync(database, table, server, feed)) == {"rows": 2, "objects": 2}


def test_guards(database: str, table: str, server: Server, feed: str, tmp_path: Path) -> None:
    """It stops for an empty table and for too many deletes; if they are allowed, it resumes."""
    make(database, table)
    post(server, feed, *(operation(id) for id in range(1, 11)))
    stopped = sync(database, table, server, feed)
    assert (stopped.exit_code, json.loads(stopped.stdout)["stopped"]) == (3, "empty_table")
    do(database, f"INSERT INTO {table} SELECT generate_series(1, 5)")
    kept = "--progress", str(tmp_path / "progress")
    stopped = sync(database, table, server, feed, *kept)
    assert (stopped.exit_code, json.loads(stopped.stdout)["stopped"]) == (3, "too_many_deletes")
    assert "5 of 10 objects (50%) would be deleted" in stopped.stderr
    assert len(told(server, feed)) == 10
    again = sync(database, table, server, feed, *kept, "--max-delete-share", "0.5")
    assert done(again) == {"rows": 5, "objects": 10, "deletes": 5, "applied": 5}
    assert done(sync(database, table, server, feed, *kept)) == {"rows": 5, "objects": 5}


def test_without_deletes(database: str, table: str, server: Server, feed: str) -> None:
    """Objects without a row stay."""
    make(database, table, 1)
    post(server, feed, operation(2))
    assert done(sync(database, table, server, feed, "--no-deletes")) == {
        "rows": 1,
        "creates": 1,
        "applied": 1,
    }


def test_what_is_wrong_is_said(
    database: str, table: str, server: Server, feed: str, tmp_path: Path
) -> None:
    """In one sentence, before anything is done."""
    make(database, table, 1)
    kept = "--progress", str(tmp_path / "progress")
    (tmp_path / "other").write_text("no such file" * 1000)
    post(server, feed, operation(2))
    assert sync(database, table, server, feed, *kept).exit_code == 3
    for more, said in (
        ((*kept, "--with-data"), "belongs to another sync"),
        (("--progress", str(tmp_path / "other")), "cannot be used: file is not a database"),
        (("--changed", "no"), "has no column 'no'; the columns are id, changed, title"),
    ):
        result = sync(database, table, server, feed, *more)
        assert (result.exit_code, said in result.output) == (1, True), result.output
    assert sync(database, table, server, feed, *kept, "--dry-run").exit_code == 2
    nowhere = sync("host=/nowhere", table, server, feed)
    assert nowhere.exit_code == 1
    assert "Error: the database: connection" in nowhere.output
    assert [each["id"] for each in told(server, feed)] == ["2", "1"]


def test_the_commands_of_the_guide(
    database: str, server: Server, feed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are the commands of docs/guides/SYNC.md, with the addresses of this database and
    feed."""
    monkeypatch.chdir(tmp_path)
    do(
        database,
        "CREATE TABLE videos (id bigint PRIMARY KEY, updated_at timestamptz, title text)",
        f"INSERT INTO videos VALUES (1, '{EARLY}', 'one')",
    )
    texts = [each for each in fenced(GUIDE) if " sync table " in each]
    assert len(texts) == 2
    for text in texts:
        words = text.replace("postgresql:///app", "DSN").split()[1:]
        words[words.index("DSN")] = database
        result = CliRunner().invoke(main, [*words, "--url", server.url, "--feed", feed, *PROMPT])
        assert result.exit_code == 0, result.output
    assert "creates" in result.output
    assert list(objects(server, feed)) == ["1"]


class Owner:
    """Writes to the table and posts it within *lag_s*, in the order of its commits; of the objects
    up to *forgets* nothing is posted.
    """

    def __init__(self, database: str, table: str, server: Server, feed: str, forgets: int) -> None:
        self._dsn, self._table, self._server, self._feed = database, table, server, feed
        self._forgets, self._random = forgets, random.Random(7)
        self._outbox: list[tuple[float, float, dict[str, Any]]] = []
        self._lock = threading.Condition()
        self.stopping = threading.Event()
        self.posted, self.lag_s = 0, 0.0

    def write(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self.stopping.is_set():
                id = self._random.randint(1, 400)
                began, version = time.monotonic(), time.time_ns() // 1_000_000
                if self._random.random() < 0.3:
                    query, event = f"DELETE FROM {self._table} WHERE id = %s", "delete"
                    connection.execute(query, (id,))
                else:
                    query, event = (
                        (
                            f"INSERT INTO {self._table} VALUES (%s, to_timestamp(%s / 1000.0), %s)"
                            " ON CONFLICT (id) DO UPDATE SET changed = excluded.changed,"
                            " title = excluded.title"
                        ),
                        "update",
                    )
                    connection.execute(query, (id, version, f"v{version}"))
                if id > self._forgets:
                    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(version / 1000))
                    stamp = f"{moment}.{version % 1000:03}Z"
                    self._put(began, {"event": event, "id": str(id), "timestamp": stamp})
                time.sleep(0.002)

    def post(self) -> None:
        while not self.stopping.is_set() or self._outbox:
            with self._lock:
                now = time.monotonic()
                due = [each for each in self._outbox if each[0] <= now]
                del self._outbox[: len(due)]
            if due:
                post(self._server, self._feed, *(each for _, _, each in due))
                self.posted += len(due)
                oldest = min(began for _, began, _ in due)
                self.lag_s = max(self.lag_s, time.monotonic() - oldest)
            time.sleep(0.02)

    def _put(self, began: float, operation: dict[str, Any]) -> None:
        with self._lock:
            last = self._outbox[-1][0] if self._outbox else 0.0
            at = max(last, time.monotonic() + self._random.uniform(0, LAG_S))
            self._outbox.append((at, began, operation))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [threading.Thread(target=each) for each in (self.write, self.post)]
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self.stopping.set()
            for each in threads:
                each.join(60)


def test_a_table_in_use_is_synced_and_killed(
    database: str, table: str, server: Server, feed: str, tmp_path: Path
) -> None:
    """The sync is killed by SIGKILL at some moments, then runs to the end: rows that were never
    posted are in the feed, the owner's posts are neither undone nor repeated, and in the end both
    are equal.
    """
    make(database, table, *range(1, 301))
    post(server, feed, *(operation(id) for id in range(101, 401)))
    do(database, f"DELETE FROM {table} WHERE id % 40 = 0")
    kept = "--progress", str(tmp_path / "progress"), "--changed", "changed"
    slow = *kept, "--chunk", "50", "--rate", "600", "--max-delete-share", "1"
    owner = Owner(database, table, server, feed, forgets=100)
    command = [sys.executable, "-m", "tidings.client.cli.main"]
    with owner.at_work():
        for pause_s in (0.3, 0.7):
            before = len(told(server, feed))
            running = [*command, *arguments(database, table, server, feed, *slow)]
            with subprocess.Popen(running, stdout=subprocess.DEVNULL) as process:
                until(lambda: (tmp_path / "progress").exists(), within_s=60)
                time.sleep(pause_s)
                process.kill()
            assert len(told(server, feed)) >= before
        first = done(sync(database, table, server, feed, *slow))
        assert first["applied"] > 0
    assert owner.posted > 100
    last = done(sync(database, table, server, feed, *kept, "--max-delete-share", "1"))
    assert last["rows"] > 0

    with psycopg.connect(database) as connection:
        query = f"SELECT id::text, (1000 * extract(epoch FROM changed))::bigint FROM {table}"
        rows: dict[str, int] = dict(connection.execute(query).fetchall())
    found = objects(server, feed)
    assert found.keys() == rows.keys()
    if owner.lag_s < GRACE_S:  # else this machine was too slow for the grace
        check_order(told(server, feed))
    assert done(sync(database, table, server, feed, *kept)) == {
        "rows": len(rows),
        "objects": len(rows),
    }


def check_order(operations: list[dict[str, Any]]) -> None:
    """Assert that no operation of an object is repeated, and none is older than the one before."""
    latest: dict[str, dict[str, Any]] = {}
    for each in operations:
        before = latest.get(each["id"])
        if before is not None and each["event"] != "delete":
            newer = to_ms(each["timestamp"]) > to_ms(before["timestamp"])
            assert newer or before["event"] == "delete", (before, each)
        latest[each["id"]] = each


def test_lineage_names_the_table_without_its_user(
    server: Server, database: str, feed: str, receiver: Receiver
) -> None:
    """A guard that stops it fails it; of the address there is the host and the database."""
    do(database, "CREATE TABLE told (id int PRIMARY KEY)", "INSERT INTO told VALUES (1), (2)")
    assert done(sync(database, "told", server, feed, "--lineage"))["applied"] == 2
    do(database, "DELETE FROM told")
    assert sync(database, "told", server, feed, "--lineage").exit_code == 3

    assert receiver.states == ["START", "COMPLETE", "START", "FAIL"]
    whole, stopped = receiver.events[1::2]
    table, _ = whole["inputs"]
    assert table["name"].endswith(".public.told")
    assert table["namespace"].startswith("postgres://") and "@" not in table["namespace"]
    assert table["inputFacets"]["inputStatistics"]["rowCount"] == 2
    assert whole["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert "has no rows" in stopped["run"]["facets"]["errorMessage"]["message"]
