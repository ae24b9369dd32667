"""Copies that are interrupted inside a bucket resume there, whatever changes in the meantime."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import MemoryState
from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core import limits
from tidings.core.catchup.catchup import Progress
from tidings.core.model import cursors
from tidings.core.model.cursors import Replication
from tidings.core.model.events import Event
from tidings.core.model.filters import EVERYTHING
from tidings.core.model.operations import data_of
from tidings.core.state.rows import Lines, Row
from tidings.core.state.tombstones import Remembered

PART = 4  # living objects
READ = 5  # rows
DAY = 24 * 3600 * 1000


@pytest.fixture(autouse=True)
def one_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small enough to be cut many times."""
    monkeypatch.setattr(limits, "BUCKETS", 1)
    monkeypatch.setattr(limits, "COPY_PART_ROWS", PART)
    monkeypatch.setattr(limits, "COPY_STEP_ROWS", 1)


class Slowly(MemoryState):
    """A few rows a read, so that a bucket takes many."""

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        return super().read(feed, bucket, after)[:READ]

    def lines(self, feed: str, bucket: int, after: str | None = None) -> Lines:
        rows = super().read(feed, bucket, after)
        cut = rows[READ - 1].key if len(rows) > READ else None
        rows = rows[:READ]
        return Lines([row.line for row in rows], [row.page for row in rows], cut)


@pytest.fixture
def scene() -> Scene:
    return Scene(state=Slowly())


class Client:
    """Takes *most* events of a connection, then it is cut; *holds* what they said."""

    def __init__(self, scene: Scene, cursor: str = "0") -> None:
        self.scene, self.cursor = scene, cursor
        self.holds: dict[str, str] = {}
        self.received = 0
        self.complete = False

    def connect(self, most: int) -> None:
        catch_up = self.scene.catch_up
        progress, left = catch_up.start(FEED, cursors.parse(self.cursor)), most
        while not self.complete:
            step = catch_up.step(FEED, progress, EVERYTHING)
            for event in step.events:
                if not left:
                    return
                left -= 1
                self._take(event)
            progress = Progress.decode(step.progress.encode())
            self.cursor, self.complete = progress.cursor, step.at_frontier

    def _take(self, event: Event) -> None:
        self.received += 1
        self.cursor = event.id
        if event.name == "reset":
            self.holds.clear()
            self.cursor = "0"
        elif event.name == "delete":
            self.holds.pop(json.loads(event.data)["id"], None)
        elif event.data:
            self.holds[json.loads(event.data)["id"]] = event.data


def living(scene: Scene) -> dict[str, str]:
    rows = MemoryState.read(scene.state, FEED, 0)
    return {json.loads(row.line)["id"]: data_of(row.line) for row in rows if not row.deleted}


def test_a_copy_of_a_large_bucket_ends(scene: Scene) -> None:
    """A client that takes two parts a connection would begin the bucket again for ever."""
    scene.post(*(op(f"x{number:03}", "insert") for number in range(200)))
    scene.project()
    client, connections = Client(scene), 0
    while not client.complete and connections < 100:
        client.connect(2 * PART + 1)
        connections += 1

    assert client.holds == living(scene)
    assert connections <= 200 // PART + 2
    assert client.received <= 200 + connections * PART + 2


_OPS = st.lists(
    st.tuples(st.sampled_from(["insert", "update", "delete"]), st.integers(0, 40)), max_size=12
)


@settings(max_examples=60)
@given(_OPS, st.lists(st.tuples(st.integers(1, 25), _OPS), max_size=12), st.sampled_from([0, 1]))
def test_whatever_changes_between_two_connections(
    before: list[tuple[str, int]], cuts: list[tuple[int, list[tuple[str, int]]]], partly: int
) -> None:
    """Nothing is missing in the end, and nothing that was deleted stays."""
    scene = Scene(state=Slowly())
    scene.post(*(op(f"x{number}", "insert") for number in range(0, 40, 2)))
    scene.project()
    client = Client(scene)
    if partly:  # a time before all changes: deletions are sent, too
        client.cursor = Replication(NOW // 1000 - 9, 1, 0, tombstones=True).encode()
    for most, changes in [(0, before), *cuts, (10_000, [])]:
        scene.now_ms += 1000
        client.connect(most)
        if changes:
            scene.post(*(op(f"x{number}", event, at=scene.now_ms) for event, number in changes))
            if most % 3:
                scene.project()
    while not client.complete:
        client.connect(10_000)
    client.complete = False
    client.connect(10_000)
    scene.project()

    assert client.holds == living(scene)


def test_skipping_takes_several_reads_and_tells_nothing(scene: Scene) -> None:
    """The cursor does not move while rows are skipped."""
    scene.post(*(op(f"x{number:03}", "insert") for number in range(60)))
    scene.project()
    cursor = Replication(0, 1, 0, False, part=10)
    progress, steps = scene.catch_up.start(FEED, cursor), 0
    while progress.skips:
        step = scene.catch_up.step(FEED, progress, EVERYTHING)
        assert step.events == [] and step.progress.cursor == cursor.encode()
        progress, steps = step.progress, steps + 1

    assert steps > 5
    first = scene.catch_up.step(FEED, progress, EVERYTHING).events[0]
    assert '"x040"' in first.data


def test_a_bucket_with_fewer_objects_than_were_told_begins_anew(scene: Scene) -> None:
    """This happens after a repair: it is unknown how many of the removed objects were before the
    place.
    """
    scene.post(*(op(f"x{number}", "insert") for number in range(9)))
    scene.project()
    progress = scene.catch_up.start(FEED, Replication(0, 1, 0, False, part=10))
    while progress.skips:
        progress = scene.catch_up.step(FEED, progress, EVERYTHING).progress

    assert (progress.after_key, progress.passed, progress.bucket) == (None, 0, 0)


def test_a_bucket_whose_deletions_are_forgotten_begins_anew(scene: Scene) -> None:
    """The objects before the place cannot be counted any more."""
    scene.post(op("a"), op("b"))
    scene.project()
    scene.post(op("a", "delete"))
    scene.project()
    scene.tombstones.remember(FEED, scene.tombstones.remembered(FEED), Remembered(DAY, DAY, 0))
    scene.now_ms += 2 * DAY
    scene.post(op("b"))
    scene.projector = replace(scene.projector, runtime=replace(scene.runtime, tombstone_ms=DAY))
    scene.project()

    assert scene.catch_up.start(FEED, Replication(0, 1, 0, False, part=1)).skips == 0
    assert scene.catch_up.start(FEED, Replication(0, 2, 0, False, part=1)).skips == PART


@pytest.mark.parametrize("since", ["0", "changes"])
def test_a_copy_leaves_out_what_the_log_sends_after_it(scene: Scene, since: str) -> None:
    """Otherwise a client that resumes after a restore would keep data of pages that it lost."""
    scene.post(*(op(f"x{number}", "insert") for number in range(10)))
    scene.project()
    cursor = Replication(NOW // 1000 - 9, 1, 0, tombstones=True).encode()
    progress = scene.catch_up.start(FEED, cursors.parse("0" if since == "0" else cursor))
    scene.post(op("x3", "update"), op("x4", "delete"), op("new", "insert"))
    scene.project()
    rows, pages = list[Event](), list[Event]()
    for _ in range(20):
        step = scene.catch_up.step(FEED, progress, EVERYTHING)
        (rows if progress.copying else pages).extend(step.events)
        progress = step.progress

    copied = {json.loads(event.data)["id"] for event in rows if event.data}
    assert copied == {f"x{number}" for number in range(10)} - {"x3", "x4"}
    assert [(each.name, json.loads(each.data)["id"]) for each in pages if each.data] == [
        ("update", "x3"),
        ("delete", "x4"),
        ("insert", "new"),
    ]
