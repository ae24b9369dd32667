"""The worked example of compaction in the documented promise."""

from __future__ import annotations

import json

from click.testing import CliRunner

from tests.twin import Twin
from tests.unit.lake.parts import Scene
from tidings.client import NamedConsumers, Poster
from tidings.client.cli.main import main
from tidings.core.archive import segments
from tidings.sync.feed import on_endpoint

CLOSED, ACTIVE = "AABBAABBCACBAACBA", "AABBAABBCAC"  # messages 0 to 16 and 17 to 27, by their key
OFFSETS = {"A": 26, "B": 23, "C": 27}  # of c0, by key: all but 24 is acknowledged


def test_T16_exactly_14_15_and_16_are_left(twin: Twin, scene: Scene) -> None:
    """C, B and A; the active part and the consumer stay as they are."""
    ids = _posted(twin)
    with NamedConsumers(twin.url, "main") as api:
        before = _acknowledged(api, ids)
        active = _archived(twin, scene)

        scene.follow()
        done = _compact(scene, "--url", twin.url)
        after = _still(api.show("c0"))

    assert (done["operations"], done["left"]) == (17, 3)
    numbers = {id[8:]: number for number, id in enumerate(ids)}
    found = [(numbers[f"{page:010x}{slot:06x}"], line) for page, slot, line in scene.entries()]
    closed = [(number, json.loads(line)["id"]) for number, line in found if number <= 16]
    assert closed == [(14, "C"), (15, "B"), (16, "A")]
    assert [number for number, _ in found if number > 16] == list(range(17, 28))
    assert scene.store.get("main", scene.spans()[-1]) == active
    assert after == before
    assert len(scene.history()) == 28


def test_T18_a_consumer_that_acknowledged_nothing_bounds_it(twin: Twin, scene: Scene) -> None:
    """Nothing is compacted until it acknowledges, for both ways to access the feed."""
    feed = "fresh"
    with Poster(twin.url, feed) as poster:
        for _ in range(3):
            last = poster.post([{"event": "update", "type": "t", "id": "x"}])
    with NamedConsumers(twin.url, feed) as api:
        api.register("idle", {})
        scene.feed = feed
        for page in on_endpoint(feed, twin.dynamodb_url).stores.log.read(feed, 0):
            scene.put(page)

        scene.follow()
        nothing = [
            _compact(scene, *where)
            for where in (("--url", twin.url), ("--endpoint-url", twin.dynamodb_url))
        ]
        assert [(done["bound"], done["written"]) for done in nothing] == [(0, 0), (0, 0)]

        api.act("idle", "mark", {"position": last[-1], "why": "a test", "by": "ann"})
        done = _compact(scene, "--url", twin.url)
    assert (done["operations"], done["left"], done["written"]) == (2, 1, 1)


def _posted(twin: Twin) -> list[str]:
    ids: list[str] = []
    with Poster(twin.url, "main") as poster:
        for keys in (CLOSED, ACTIVE):
            for key in keys:
                ids += poster.post([{"event": "update", "type": "key", "id": key}])
    return ids


def _acknowledged(api: NamedConsumers, ids: list[str]) -> dict[str, object]:
    api.register("c0", {})
    fence = api.act("c0", "lease", {"worker": "w"})["fence"]
    keys = CLOSED + ACTIVE
    acked = [id for number, id in enumerate(ids) if number <= OFFSETS[keys[number]]]
    assert sorted(set(ids) - set(acked)) == [ids[24]]
    api.act("c0", "ack", {"fence": fence, "ids": acked})
    api.act("c0", "lease", {"worker": "w"})
    shown = api.show("c0")
    assert shown["position"][:18] == ids[23][:18]
    return _still(shown)


def _still(shown: dict[str, object]) -> dict[str, object]:
    """Return the fields that do not depend on time: without the lag and the lease."""
    timely = ("lag_ms", "state", "worker")
    return {name: value for name, value in shown.items() if name not in timely}


def _archived(twin: Twin, scene: Scene) -> bytes:
    """Archive the log as two parts; return the bytes of the active one."""
    pages = on_endpoint("main", twin.dynamodb_url).stores.log.read("main", 0)
    entries, at = 0, 0
    while entries < len(CLOSED):
        entries += len(pages[at].lines)
        at += 1
    scene.put(*pages[:at])
    span = scene.put(*pages[at:])
    body = scene.store.get("main", span)
    assert body is not None
    assert len(segments.decode(body)) == len(ACTIVE)
    return body


def _compact(scene: Scene, *where: str) -> dict[str, int]:
    archive, table = (scene.folder / "parts").as_uri(), str(scene.folder / "lake")
    options = ["--feed", scene.feed, "--archive", archive, "--table", table, "--json", *where]
    done = CliRunner().invoke(main, ["archive", "compact", *options])
    assert done.exit_code == 0, done.output
    found: dict[str, int] = json.loads(done.stdout)
    return found
