"""The job as a stage runs it: one run for all feeds, each bounded by its own consumers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.compat.oplog.wire import until
from tests.twin import Twin, store
from tests.unit.lake.parts import Scene
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.client import NamedConsumers, Poster
from tidings.core.feeds.records import (
    TABLES_DROPPED,
    TABLES_PENDING,
    FeedRecord,
    FeedStore,
    Removal,
)
from tidings.core.model.pages import Page
from tidings.lake import emr, status
from tidings.lake.warehouse import kind_of, table_names
from tidings.sync.feed import on_endpoint


def test_one_run_does_every_feed(
    twin: Twin, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is stopped fails the run, with its sentence, and holds up no other; then the
    archives are compacted, each as far as its consumers and its table are.
    """
    for feed in ("c1", "c2", "c3"):
        _archived(twin, scene, feed)
    with NamedConsumers(twin.url, "c2") as api:
        api.register("idle", {})
    ahead = Scene(scene.spark, scene.folder / "ahead", "c3")
    ahead.put(*(_page(twin, "c1", number) for number in range(1, 8)))
    scene.feed = "c3"
    scene.follow(source=ahead.source)

    code = emr.main(_arguments(twin, scene, "c1,c3,c2"))

    lines = capsys.readouterr().err.splitlines()
    batches = {each["feed"]: each for each in map(json.loads, (s for s in lines if s[0] == "{"))}
    assert code == 1
    assert lines[-1].startswith("failed: c3: the tables contain page 7, but the feed ends")
    assert {feed: each["operations"] for feed, each in batches.items()} == {"c1": 4, "c2": 4}

    assert emr.main([*_arguments(twin, scene, "c1,c2"), "--compact", "yes"]) == 0
    lines = capsys.readouterr().err.splitlines()
    reports = {each["feed"]: each for each in map(json.loads, (s for s in lines if s[0] == "{"))}
    assert (reports["c1"]["through"], reports["c1"]["left"], reports["c1"]["written"]) == (4, 1, 1)
    assert (reports["c2"]["through"], reports["c2"]["written"]) == (4, 0)


def test_tables_of_a_deleted_feed_are_dropped(twin: Twin, scene: Scene) -> None:
    """When its other data is removed, and not before. The tables of a feed that was created at
    runtime are named by its key, so they are not those of an earlier feed of the name.
    """
    records = FeedStore(
        DynamoDBRecords(store.tables_client(twin.dynamodb_url), store.table_name("control"))
    )
    assert records.save(FeedRecord("made", 2))
    with Poster(twin.url, "made") as poster:
        poster.post([{"event": "update", "type": "t", "id": "x"}])
    place = on_endpoint("made", twin.dynamodb_url)
    assert place.feed == "made~2"
    until(lambda: status.bound_in_tables(place) == 1)

    def tables() -> list[str]:
        assert emr.main(_arguments(twin, scene, "fresh")) == 0
        return [name for name in table_names(scene.warehouse) if kind_of("made~2", name)]

    assert tables() == ["made_7e2_history", "made_7e2_latest"]
    for done_ms in (0, 1):
        record = records.record("made")
        assert record is not None
        removal = Removal(2, 1, tables=TABLES_PENDING, done_ms=done_ms)
        assert records.save(replace(record, is_live=False, removals=(removal,)))
        assert len(tables()) == (0 if done_ms else 2)
    found = records.record("made")
    assert found is not None and found.removals[0].tables == TABLES_DROPPED
    assert not records.unfinished()


def test_wrong_usage_is_told() -> None:
    """An invalid address of a table and an invalid database name are refused."""
    common = ["--feeds", "main", "--log-table", "l", "--state-table", "s", "--control-table", "c"]
    for wrong in (
        ["--archive", "file:///a", "--table", "file:///t", "--glue", "db"],
        ["--archive", "file:///a", "--table", "s3://b/t", "--glue", "My-DB"],
        ["--archive", "a", "--table", "/t"],
        ["--archive", "file:///a", "--table", "/t", "--columns", "{"],
    ):
        with pytest.raises(SystemExit):
            emr.main([*common, *wrong])


def _arguments(twin: Twin, scene: Scene, feeds: str) -> list[str]:
    names = {each: f"tidings-local-{each}" for each in ("log", "state", "control")}
    return [
        *("--feeds", feeds, "--endpoint-url", twin.dynamodb_url),
        *("--archive", (scene.folder / "parts").as_uri(), "--table", str(scene.folder / "lake")),
        *(part for name, table in names.items() for part in (f"--{name}-table", table)),
    ]


def _archived(twin: Twin, scene: Scene, feed: str) -> None:
    """Four pages, a part each; the followers have handled them."""
    with Poster(twin.url, feed) as poster:
        for _ in range(4):
            poster.post([{"event": "update", "type": "t", "id": "x"}])
    scene.feed = feed
    place = on_endpoint(feed, twin.dynamodb_url)
    until(lambda: status.bound_in_tables(place) == 4)
    for page in place.stores.log.read(feed, 0):
        scene.put(page)


def _page(twin: Twin, feed: str, number: int) -> Page:
    found = on_endpoint(feed, twin.dynamodb_url).stores.log.read(feed, 0)[0]
    return replace(found, number=number)
