"""Tables that follow a feed: every operation, the latest one of each object, and the position."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from tests.twin import Twin
from tests.unit.core.scene import NOW, line
from tests.unit.lake import readers
from tests.unit.lake.parts import Scene, fold, kept
from tests.unit.spark.feeds import fill, projected, trim
from tidings.core.changeagent.changes import Change, line_of
from tidings.core.model.cursors import PAGE_END, Place
from tidings.lake.feed_tables import FeedTables
from tidings.lake.follow import Source
from tidings.lake.tables import Table
from tidings.lake.warehouse import Raced, Stopped
from tidings.sync.feed import on_endpoint

_MOMENT = "yyyy-MM-dd HH:mm:ss.SSS"
VIDEO = '{"video": {"n": "bigint"}}'


class Died(Exception):
    """The end of a run, at the commit of a table."""


def test_the_tables_are_where_the_log_is(scene: Scene) -> None:
    """The tables have every operation once, the fold, with tombstones for deleted objects, and the
    position after the last page, even if that page is empty. A run without new pages commits
    nothing; the next run continues.
    """
    scene.put(kept(1, line("a"), line("b")), kept(2))
    scene.put(kept(3, line("a", event="delete")), kept(4))

    (batch,) = scene.follow()
    tables = scene.tables()
    found = [table.metadata() for table in tables.all()]

    assert (batch.operations, batch.page, batch.through) == (3, 4, _place(4).encode())
    assert scene.history() == scene.entries()
    assert scene.latest() == fold(scene.entries())
    assert {each.through for each in found if each} == {batch.through}
    assert scene.follow() == []
    assert [table.metadata() for table in tables.all()] == found

    scene.put(kept(5, line("b", data=1)), kept(6, line("b", data=2), line("c")))
    (batch,) = scene.follow()
    assert batch.operations == 3
    assert scene.history() == scene.entries()
    assert scene.latest() == fold(scene.entries())


def test_every_column_says_what_the_line_says(scene: Scene) -> None:
    """This holds for any data, which is stored as it was written, and never taken for a column."""
    number = "1" * 3000  # beyond what Spark's reader of JSON takes
    whole = line(
        'x,"data":1',
        "delete",
        parents=['a,"data":2}', "ü"],
        tags=["t"],
        changed=["c"],
        timestamp="0001-01-01T00:00:00.5Z",
        data={"id": "inner", "n": [1.0, None]},
    )
    plain, long = line("plain"), line("long", data=int(number))
    change = line_of(Change('"5"', ("t",)), name="c1", now_ms=NOW)
    scene.put(kept(1), kept(2, whole, plain, long, change))

    scene.follow()
    moment = F.date_format("timestamp", _MOMENT).alias("moment")  # Python knows no year 0
    told = scene.tables().history.rows().select("*", moment).drop("timestamp")
    rows = told.orderBy("slot").collect()

    first, second, third, fourth = rows
    assert first["cursor"] == Place(2, 0, (NOW + 2_000) // 1000).encode()
    assert (first["event"], first["type"], first["id"]) == ("delete", "video", 'x,"data":1')
    assert (first["parents"], first["tags"], first["changed"]) == (
        ['a,"data":2}', "ü"],
        ["t"],
        ["c"],
    )
    assert first["moment"] == "0001-01-01 00:00:00.500"
    assert first["data"] == '{"id":"inner","n":[1.0,null]}'
    assert first["at"].replace(tzinfo=dt.UTC).timestamp() * 1000 == NOW + 2_000
    assert (second["data"], second["tags"]) == (None, None)
    assert (third["id"], third["data"]) == ("long", number)
    assert (fourth["type"], fourth["data"], fourth["parents"]) == ("change", '"5"', ["t"])
    assert [each["line"] for each in rows] == [whole, plain, long, change]
    assert [entry[1] for entry in scene.latest()] == [0, 1, 2]


def test_a_batch_that_comes_again_changes_nothing(scene: Scene) -> None:
    """A repeat of a batch or of a part of it, in the same run or another one, is skipped."""
    scene.put(kept(1, line("a", data={"n": 1}), line("b", data={"n": 1})))
    scene.put(kept(2, line("a", event="delete"), line("b", data={"n": 2})))
    scene.follow(VIDEO)
    tables = scene.tables(VIDEO)
    tables.catch_up()
    before = [table.metadata() for table in tables.all()]
    batch = tables.history.rows()

    assert tables.take(batch, _place(1)) == tables.take(batch, _place(2)) == {}
    assert [table.metadata() for table in tables.all()] == before
    tables.take(batch, _place(3))  # a longer batch, with the same pages and an empty one

    assert scene.history() == scene.entries()
    assert scene.latest() == fold(scene.entries())
    assert _videos(tables) == [("b", 2)]
    assert {table.through() for table in tables.all()} == {_place(3)} | {_place(2)}


def test_older_operations_never_replace_newer_ones(scene: Scene) -> None:
    """A run that was held up writes what another one has passed: it is guarded by the place."""
    scene.put(kept(1, line("a", data={"n": 1})))
    scene.follow(VIDEO)
    late = scene.tables(VIDEO)
    late.catch_up()
    old = late.session.createDataFrame(late.latest.rows().toArrow(), late.latest.rows().schema)
    scene.put(kept(2, line("a", data={"n": 2})))
    scene.follow(VIDEO)

    late.latest.merge(old, _place(1))
    late.types["video"].table.merge(late.types["video"].rows(old), _place(1))

    assert scene.latest() == fold(scene.entries())
    assert _videos(late) == [("a", 2)]


def test_of_two_runs_one_is_refused(scene: Scene) -> None:
    """Both read the same pages; the second one to commit adds nothing, and its error says what to
    do."""
    scene.put(kept(1, line("a")))
    scene.follow()
    one, other = scene.tables(), scene.tables()
    one.catch_up()
    other.catch_up()
    rows = one.history.rows().withColumn("page", F.lit(2).cast("long"))
    held = one.session.createDataFrame(rows.toArrow(), rows.schema)
    seen = other.history.metadata()
    one.take(held, _place(2))
    before = [table.metadata() for table in one.all()]

    with pytest.raises(Raced, match="another run wrote"):
        other.take(held, _place(2))
    with pytest.raises(Raced, match="another run wrote"):  # between the look and the commit
        assert seen is not None
        other.history.append(held, _place(1), _place(2), seen.snapshot)

    assert [table.metadata() for table in one.all()] == before
    assert [page for page, _, _ in scene.history()] == [1, 2]


STEPS = ("history", "latest", "video")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_died_at_any_commit_the_next_run_ends_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """The run is killed before or after each of a batch's three commits: nothing is lost, doubled
    or stale, and the tables agree again as soon as another run begins.
    """
    for number, step in enumerate(STEPS):
        first = 2 * number + 1
        scene.put(kept(first, line("a", data={"n": first}), line("b", data={"n": first})))
        scene.put(kept(first + 1, line("b", event="delete"), line("c", data={"n": first})))
        fired = _dies(monkeypatch, step, after=after)
        with pytest.raises(Exception, match="Died"):
            scene.follow(VIDEO)
        monkeypatch.undo()
        assert fired == [step]

        tables = scene.tables(VIDEO)
        tables.create()
        tables.catch_up()
        history = scene.history()
        assert history == [each for each in scene.entries() if each[0] <= tables.place.page]
        assert scene.latest() == fold(history)
        assert _videos(tables) == readers.living(history)
    scene.follow(VIDEO)

    assert scene.history() == scene.entries()
    assert scene.latest() == fold(scene.entries())
    assert _videos(scene.tables(VIDEO)) == [("a", 5), ("c", 5)]


def test_tables_of_an_earlier_release_are_followed(scene: Scene) -> None:
    """They store a page instead of a cursor: their last row gives the position."""
    scene.put(kept(1, line("a")), kept(2, line("b")))
    scene.follow()
    tables = scene.tables()
    for table in tables.all():
        rows = table.session.createDataFrame(table.rows().toArrow(), table.rows().schema)
        writer = rows.writeTo(table.name).option("snapshot-property.tidings.through", "2")
        writer.overwrite(F.lit(True))
    scene.put(kept(3, line("a")))

    (batch,) = scene.follow()

    assert batch.operations == 1
    assert scene.history() == scene.entries()
    assert scene.latest() == fold(scene.entries())


def test_what_compaction_left_is_taken_if_that_is_said(scene: Scene) -> None:
    """Without the option the run stops at that page: only another table has all operations."""
    scene.put(kept(1, line("a"), line("a")))
    scene.put(kept(2, line("b")))
    scene.follow()
    scene.compact()
    other = Scene(scene.spark, scene.folder / "other")
    (scene.folder / "other").mkdir()
    (scene.folder / "other" / "parts").symlink_to(scene.folder / "parts")

    with pytest.raises(Stopped, match=r"page 1 was compacted.*--allow-gaps"):
        other.follow()
    assert other.history() == []

    other.follow(gaps=True)
    assert other.history() == other.entries()
    assert len(scene.history()) == 3


def test_what_the_log_lost_is_made_up_for_by_the_state(twin: Twin, scene: Scene) -> None:
    """A feed with a log that does not begin with page 1 is copied first. If the tables fell behind
    the log, the run stops; with --allow-gaps `latest` is replaced by the state, including
    deletions.
    """
    scene.feed = "gaps"
    source = Source({"feed": scene.feed, "endpoint": twin.dynamodb_url})
    fill(twin, scene.feed, 4)
    projected(twin, scene.feed)
    trim(twin, scene.feed, 2)

    scene.follow(VIDEO, source)
    assert {page for page, _, _ in scene.history()} == {3, 4}
    _same_as_state(twin, scene)

    fill(twin, scene.feed, 3, begin=20)
    projected(twin, scene.feed)
    trim(twin, scene.feed, 6)
    with pytest.raises(Stopped, match="begins with page 7, but the tables end with page 4"):
        scene.follow(VIDEO, source)
    scene.follow(VIDEO, source, gaps=True)

    assert {page for page, _, _ in scene.history()} == {3, 4, 7}
    _same_as_state(twin, scene)


def test_tables_of_another_feed_are_not_followed(scene: Scene) -> None:
    """Their position is after the feed's end, or the feed committed that page at another time: the
    feed was restored, or the address is wrong.
    """
    scene.put(kept(1, line("a")), kept(2, line("a")))
    scene.follow()
    other = Scene(scene.spark, scene.folder / "other")
    other.put(kept(1, line("a")))

    with pytest.raises(Stopped, match="the tables contain page 2, but the feed ends with page 1"):
        scene.follow(source=other.source)
    before = scene.history()
    other.put(replace(kept(2, line("z")), at_ms=NOW + 9_000), kept(3, line("z")))
    with pytest.raises(Stopped, match=r"page 2 .* committed at another time.* another feed"):
        scene.follow(source=other.source, gaps=True)
    assert scene.history() == before


def _place(page: int) -> Place:
    return Place(page, PAGE_END, (NOW + page * 1_000) // 1_000)


def _videos(tables: FeedTables) -> list[tuple[str, int]]:
    rows = tables.types["video"].table.rows().select("id", "n").collect()
    return sorted((row["id"], row["n"]) for row in rows)


def _dies(monkeypatch: pytest.MonkeyPatch, kind: str, *, after: bool) -> list[str]:
    """Make the next commit of the table *kind* end the run; return a list that records it."""
    fired: list[str] = []

    def wrapped(name: str) -> None:
        original = getattr(Table, name)

        def commit(self: Table, *arguments: object) -> None:
            ours = not fired and self.called.endswith(kind)
            if ours and not after:
                fired.append(kind)
                raise Died("Died")
            original(self, *arguments)
            if ours:
                fired.append(kind)
                raise Died("Died")

        monkeypatch.setattr(Table, name, commit)

    for name in ("append", "merge"):
        wrapped(name)
    return fired


def _same_as_state(twin: Twin, scene: Scene) -> None:
    """Assert that `latest` has exactly the objects of the feed's state."""
    place = on_endpoint(scene.feed, twin.dynamodb_url)
    state = place.stores.state
    rows = [row for bucket in range(64) for row in state.read(scene.feed, bucket, None)]
    living = {(row.page, row.slot) for row in rows if not row.deleted}
    found = scene.tables().latest.rows().where("event <> 'delete'").select("page", "slot")
    assert {tuple(row) for row in found.collect()} == living
    videos = scene.tables(VIDEO).types["video"].table.rows().select("page", "slot")
    assert {tuple(row) for row in videos.collect()} <= living
