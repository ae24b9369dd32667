"""The job as a stage runs it: one run for all feeds, each bounded by its own consumers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tidings.client import NamedConsumers, Poster
from tidings.core.model.pages import Page
from tidings.lake import consumer_bounds, emr
from tidings.local.running import Twin
from tidings.sync.target import on_twin

from tests.lake.parts import Scene
from tests.oplog.wire import until


def test_one_run_does_every_feed(
    twin: Twin, scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is stopped fails the run, with its sentence, and holds up no other."""
    for feed in ("c1", "c2"):
        _archived(twin, scene, feed)
    with NamedConsumers(twin.url, "c2") as api:
        api.register("idle", {})
    scene.feed = "c3"
    for number in (1, 3, 4):
        scene.put(_page(twin, "c1", number))

    code = emr.main(_arguments(twin, scene, "c1,c3,c2"))

    lines = capsys.readouterr().err.splitlines()
    reports = {each["feed"]: each for each in map(json.loads, (s for s in lines if s[0] == "{"))}
    assert code == 1
    assert lines[-1] == (
        "failed: c3: the archive lacks the pages 2 to 2; let gaps be with --allow-gaps"
    )
    assert (reports["c1"]["loaded"], reports["c1"]["left"], reports["c1"]["written"]) == (3, 1, 1)
    assert (reports["c2"]["loaded"], reports["c2"]["written"]) == (3, 0)
    assert emr.main(_arguments(twin, scene, "c1,c2")) == 0


def test_wrong_usage_is_told() -> None:
    """What is no address of a table, and what is no database."""
    common = ["--feeds", "main", "--log-table", "l", "--state-table", "s", "--control-table", "c"]
    for wrong in (
        ["--archive", "file:///a", "--table", "file:///t", "--glue", "db"],
        ["--archive", "file:///a", "--table", "s3://b/t", "--glue", "My-DB"],
        ["--archive", "a", "--table", "/t"],
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
    place = on_twin(feed, twin.dynamodb_url)
    until(lambda: consumer_bounds.in_tables(place) == 4)
    for page in place.log().read(feed, 0):
        scene.put(page)


def _page(twin: Twin, feed: str, number: int) -> Page:
    found = on_twin(feed, twin.dynamodb_url).log().read(feed, 0)[0]
    return replace(found, number=number)
