"""A data file of a release whose documents were not records yet is converted when it is opened."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.contract import samples
from tidings.core.auth.keys import KeyStore
from tidings.core.changeagent.documents import OperatorDocument, OperatorDocuments
from tidings.core.consumers.consumer import ConsumerStore
from tidings.core.durable_streams.stream import streams_in
from tidings.core.erasure.records import ErasureStore, Phase
from tidings.core.feeds.records import FeedStore
from tidings.core.maintenance.retention import Round, rounds_in
from tidings.core.records import HOST_RECORDS
from tidings.core.replication.relay import RelayPasswords
from tidings.core.settings.profiles import ProfileStore
from tidings.core.state.tombstones import Remembered, TombstoneStore
from tidings.server.sqlite.database import MIGRATIONS, Database
from tidings.server.sqlite.erasures import VACUUM
from tidings.server.sqlite.log import SqliteLog, SqliteRelays
from tidings.server.sqlite.records import SqliteRecords, deleted_feeds, feeds_with_webhooks

FEED = "main"
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
