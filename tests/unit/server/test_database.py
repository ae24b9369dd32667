"""The database of a server, and the conversion of files of earlier releases."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract import samples
from tidings.core import limits
from tidings.core.auth.keys import KeyStore
from tidings.core.changeagent.documents import OperatorDocument, OperatorDocuments
from tidings.core.consumers.consumer import ConsumerStore
from tidings.core.durable_streams.stream import streams_in
from tidings.core.erasure.records import ErasureStore, Phase
from tidings.core.errors import Unavailable
from tidings.core.feeds.records import FeedStore
from tidings.core.log.append import Claim
from tidings.core.maintenance.retention import Round, rounds_in
from tidings.core.model.feeds import STATE
from tidings.core.model.pages import Page
from tidings.core.records import HOST_RECORDS
from tidings.core.replication.relay import RelayPasswords
from tidings.core.settings.profiles import ProfileStore
from tidings.core.state.rows import ABSENT, NOTHING, Overwritten, Row
from tidings.core.state.tombstones import Remembered, TombstoneStore
from tidings.server.sqlite.database import MIGRATIONS, CannotOpen, Database
from tidings.server.sqlite.erasures import VACUUM
from tidings.server.sqlite.log import SqliteClaims, SqliteFollowers, SqliteLog, SqliteRelays
from tidings.server.sqlite.records import SqliteRecords, deleted_feeds, feeds_with_webhooks
from tidings.server.sqlite.state import SqliteState

FEED = "main"
KILLED_AT = 200  # pages acknowledged before the writer is killed
# Appends pages for ever and prints each number once its page is acknowledged.
WRITER = """
import sys
from itertools import count
from pathlib import Path
from tidings.core.log.append import Claim
from tidings.core.model.pages import Page
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteClaims, SqliteLog
log = SqliteLog(Database(Path(sys.argv[1])))
for each in count(1):
    number = log.take("main", 1)
    log.put("main", Page(number, "x" * 1000, str(number), each))
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "feed.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database(path)
    yield opened
    opened.close()


def page(number: int, expires_ms: int = 0) -> Page:
    return Page(number, "{}", "a", 1, expires_ms)


def test_what_was_acknowledged_outlives_a_kill(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page for which `put` returned is there unchanged, and the head is at or after the last
    one.
    """
    monkeypatch.setattr(limits, "SERVER_READ_BYTES_MAX", 1 << 30)
    command = [sys.executable, "-c", WRITER, str(path)]
    search = {"PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=search) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(KILLED_AT)]
        writer.kill()
    database = Database(path)
    log = SqliteLog(database)
    pages = log.read(FEED, 0)
    assert [each.number for each in pages][:KILLED_AT] == acknowledged
    assert {each.body for each in pages} == {"x" * 1000}
    assert log.head(FEED) >= pages[-1].number
    assert log.take(FEED) == log.head(FEED) > pages[-1].number
    database.close()


def test_a_second_process_is_refused(path: Path, database: Database) -> None:
    """It gets one error; the first one continues, and after its end the next one may open the
    file."""
    with pytest.raises(CannotOpen, match="another process serves this file"):
        Database(path)
    assert SqliteLog(database).take(FEED) == 1
    database.close()
    again = Database(path)
    assert SqliteLog(again).head(FEED) == 1
    again.close()


def test_a_newer_file_is_refused(path: Path, database: Database) -> None:
    """An older release cannot know what it would destroy; the file is left as it is."""
    database.close()
    newer = len(MIGRATIONS) + 1
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {newer}")
    connection.close()
    with pytest.raises(CannotOpen, match=f"has schema {newer}"):
        Database(path)


@pytest.mark.parametrize(
    ("content", "reason"), [(b"no database" * 100, "not a database"), (None, "unable to open")]
)
def test_what_is_no_file_of_ours_is_refused(path: Path, content: bytes | None, reason: str) -> None:
    """It names the path and SQLite's reason: other content, or a folder in its place."""
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(CannotOpen, match=f"feed.db: .*{reason}"):
        Database(path)


def test_a_full_disk_loses_nothing(database: Database) -> None:
    """The page that does not fit is refused as a whole; earlier ones stay, and reading still
    works."""
    log = SqliteLog(database)
    log.put(FEED, page(1))
    with database.transaction() as sql:
        (used,) = sql.execute("PRAGMA page_count").fetchone()
        sql.execute(f"PRAGMA max_page_count = {used}")
    with pytest.raises(Unavailable, match="full"):
        log.put(FEED, Page(2, "x" * 100_000, "b", 1))
    assert [each.number for each in log.read(FEED, 0)] == [1]
    with database.transaction() as sql:
        sql.execute("PRAGMA max_page_count = 1000000")
    assert log.put(FEED, Page(2, "x" * 100_000, "b", 1)) == "b"


def test_a_transaction_is_whole_or_nothing(database: Database) -> None:
    """An exception takes back what was written inside it, also by transactions in it."""
    log = SqliteLog(database)
    with pytest.raises(RuntimeError), database.transaction():
        log.put(FEED, page(log.take(FEED)))
        raise RuntimeError
    assert (log.head(FEED), log.read(FEED, 0)) == (0, [])
    with database.transaction():
        log.put(FEED, page(log.take(FEED)))
    assert (log.head(FEED), len(log.read(FEED, 0))) == (1, 1)


def test_new_pages_of_a_transaction_are_read_within_it(database: Database) -> None:
    """A page counts for each later read, and an undone part removes its own pages."""
    log = SqliteLog(database)
    with database.transaction():
        log.put(FEED, page(log.take(FEED, 2)))
        assert (log.head(FEED), len(log.read(FEED, 0))) == (1, 1)
        log.put(FEED, page(log.take(FEED, 3)))
        with pytest.raises(RuntimeError), database.part():
            log.put(FEED, page(log.take(FEED, 4)))
            raise RuntimeError
        assert log.put(FEED, Page(2, "{}", "b", 1)) == "a"
        assert log.take(FEED) == 3
    assert (log.log_counter(FEED).operations, len(log.read(FEED, 0))) == (5, 2)


def test_a_page_above_the_head_is_not_overwritten(database: Database) -> None:
    """A damaged file has such a page; the next number is above it."""
    log = SqliteLog(database)
    log.fill(FEED, [page(7)])
    log.together(lambda: log.put(FEED, page(log.take(FEED))))
    assert [each.number for each in log.read(FEED, 0)] == [7, 8]


def test_a_clock_that_is_ahead_for_a_while_ends_no_claim(database: Database) -> None:
    """P4.5: it ends when as much time has elapsed, too, so that no key is taken twice."""
    clock, elapsed = [1_000], [1_000]
    claims = SqliteClaims(database, lambda: min(clock[0], elapsed[0]))
    claim = Claim("k", "f", "a", 1, expires_ms=2_000)
    assert claims.claim(FEED, claim, now_ms=clock[0]) == claim
    clock[0] = 9_000
    assert claims.claim(FEED, replace(claim, append_id="b"), now_ms=clock[0]) == claim
    elapsed[0] = 2_000
    assert claims.find(FEED, "k", now_ms=clock[0]) is None


def test_what_expired_is_deleted(database: Database) -> None:
    """Expiry is exact to the millisecond; pages without an expiry stay, and so does a page that the
    state has not handled.
    """
    log, state, followers = SqliteLog(database), SqliteState(database), SqliteFollowers(database)
    database.steps = replace(database.steps, write_more=lambda _: followers.write())
    followers.set_checkpoint(FEED, STATE, 3)
    for number, expires_ms in ((1, 1000), (2, 1001), (3, 0), (4, 1000)):
        log.put(FEED, page(number, expires_ms))
    gone = Row("video/x", 1, 0, 1, '{"event":"delete"}', expires_ms=900)
    state.write(FEED, [gone])
    assert database.delete_expired(1000) == 2
    assert [each.number for each in log.read(FEED, 0)] == [2, 3, 4]
    assert state.find(FEED, ["video/x"]) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.integers(ABSENT, 3), st.integers(ABSENT, 2), st.booleans()
        )
    )
)
def test_what_nobody_wants_to_know_of_rows_changes_none(
    writes: list[tuple[str, int, int, bool]],
) -> None:
    """Without reading the overwritten rows, the result is the same."""
    with TemporaryDirectory() as folder, closing(Database(Path(folder, "db"))) as database:
        told, untold = SqliteState(database), SqliteState(database, lambda feed: False)
        for key, page, slot, gone in writes:
            row = Row(f"video/{key}", page, slot, 1, "{}", expires_ms=9 if gone else 0)
            told.write("told", [row])
            assert untold.write("untold", [row]) == [None]
        keys = ["video/a", "video/b"]
        assert untold.find("untold", keys) == told.find("told", keys)


def test_each_store_of_the_state_is_told_what_it_overwrites(database: Database) -> None:
    """This holds for two stores on one file."""
    one, other = SqliteState(database), SqliteState(database)
    for page, store in enumerate((one, other, one), 1):
        before = Overwritten(page - 1, 0, lives=True) if page > 1 else NOTHING
        assert store.write(FEED, [Row("video/x", page, 0, 1, "{}")]) == [before]


def test_a_checkpoint_whose_commit_failed_is_written_by_the_next_one(
    path: Path, database: Database
) -> None:
    """This holds even if the follower has not moved since."""
    followers = SqliteFollowers(database)
    followers.set_checkpoint(FEED, "state", 3)

    def fail(_: object) -> None:
        followers.write()
        raise RuntimeError

    database.steps = replace(database.steps, write_more=fail)
    with pytest.raises(RuntimeError), database.transaction():
        pass
    database.steps = replace(database.steps, write_more=lambda _: followers.write())
    with database.transaction():
        pass
    database.close()
    with closing(Database(path)) as reopened:
        assert SqliteFollowers(reopened).checkpoints(FEED)["state"] == 3


def test_a_checkpoint_moves_for_others_once_it_is_committed(database: Database) -> None:
    """A reader that saw it earlier would miss the rows before it; one that fails moves nothing."""
    followers = SqliteFollowers(database)
    lease = followers.take(FEED, STATE, owner="a", now_ms=0)
    seen: list[dict[str, int]] = []

    def look() -> None:
        thread = Thread(target=lambda: seen.append(followers.checkpoints(FEED)))
        thread.start()
        thread.join()

    with pytest.raises(RuntimeError), database.transaction():
        lease = followers.save(lease, 1, now_ms=0)
        raise RuntimeError
    with database.transaction():
        lease = followers.save(lease, 2, now_ms=0)
        with pytest.raises(RuntimeError), database.part():
            followers.save(lease, 3, now_ms=0)
            raise RuntimeError
        assert followers.checkpoints(FEED) == {STATE: 2}
        look()
    look()
    assert seen == [{STATE: 0}, {STATE: 2}]


# As a release with the format 8 stored the samples of the contracts.
DOCUMENTS = json.loads(Path(__file__).with_name("documents_of_format_8.json").read_text())


def old_file(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as sql:
        for statements in MIGRATIONS[:8]:
            sql.executescript(statements)
        sql.execute("PRAGMA user_version = 8")
        for *key, body in DOCUMENTS:
            sql.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", (*key, json.dumps(body)))


def test_documents_become_records(tmp_path: Path) -> None:
    """Every kind, with its version; opening the file again changes nothing."""
    path = tmp_path / "feed.db"
    old_file(path)
    for _ in range(2):
        with closing(Database(path)) as database:
            records = SqliteRecords(database)
            assert [*KeyStore(records).keys(FEED)] == [replace(samples.KEY, version=1)]
            assert ProfileStore(records).profile(FEED) == replace(samples.PROFILE, version=2)
            documents = OperatorDocuments(records)
            assert documents.operator_document(FEED, "webhooks") == OperatorDocument("a:b", 1)
            consumers = ConsumerStore(records)
            consumer = replace(samples.consumer_of(FEED), version=2)
            assert [*consumers.consumers(FEED)] == [consumer]
            parked = [replace(samples.PARKED, id=name) for name in "01"]
            assert [*consumers.parked(FEED, "index")] == parked
            notes = [each.what for each in consumers.notes(FEED, "index")]
            assert notes == ["pause 1", "pause 0"]
            erasures, full = ErasureStore(records), replace(samples.ERASURE, version=1)
            assert [*erasures.unfinished(FEED)] == [full]
            done = replace(samples.ERASURE_2, version=2, phase=Phase.DONE)
            assert [*erasures.erasures(FEED)] == [done, full]
            assert TombstoneStore(records).remembered(FEED) == Remembered(3, 2, 1)
            relay = replace(samples.relay_of(FEED), version=2)
            assert SqliteRelays(database, SqliteLog(database)).relay(FEED) == relay
            full_stream = samples.STREAM
            assert streams_in(records).get(FEED, full_stream.name) == full_stream
            assert records.get(HOST_RECORDS, VACUUM)
            assert rounds_in(records).get(FEED) == Round(7, 4_102_444_800_000)
            assert RelayPasswords(records).password(FEED) == "secret"
            record = replace(samples.feed_record("made"), version=1)
            assert [*FeedStore(records).records()] == [*FeedStore(records).unfinished()] == [record]
            assert (deleted_feeds(database), feeds_with_webhooks(database)) == (["made"], [FEED])
            with database.reading() as sql:
                assert sql.execute("SELECT count(*) FROM documents").fetchone() == (0,)
