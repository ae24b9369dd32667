"""Objects that are erased from the tables of a feed, with everything that the files had of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from tests.unit.core.scene import NOW, line
from tests.unit.lake import readers
from tests.unit.lake.parts import Entry, Scene, entries, kept
from tests.unit.lake.searching import files_with
from tidings.core.erasure import entries as erasures
from tidings.core.erasure.entries import Scrubber
from tidings.core.model.cursors import Place
from tidings.core.model.operations import has_object, is_erasure, object_key, parse_line
from tidings.core.model.pages import Page
from tidings.lake import files
from tidings.lake.erasure import TableEraser, named_by
from tidings.lake.feed_tables import FeedTables
from tidings.lake.follow import Source
from tidings.lake.tables import Table

COLUMNS = '{"video": {"n": "bigint", "said": "string"}, "user": {"n": "bigint"}}'
ID, MARKER = "alice", "marker"
PARENT = f"video/{ID}"


class Died(Exception):
    """The end of a run."""


def _entry(id: str = ID, *, before: str = "", as_parent: bool = False) -> str:
    entry = erasures.Entry("video", id, "ann", "asked", (f"{MARKER}/p",), before, as_parent)
    return erasures.encode_entry(entry, now_ms=NOW)


def _video(n: int, id: str = ID) -> str:
    said = MARKER if id == ID else "no"
    return line(id, data={"n": n, "said": said, said: n}, parents=[f"{said}/p"], tags=[said])


def _pages() -> list[Page]:
    return [
        kept(1, _video(1), _video(1, "bob"), line("u", type="user", parents=["a/b", PARENT])),
        kept(2, _video(2)),
        kept(3, line("n", type="note", parents=[PARENT, "c/d"], data={"n": 1}), _video(3, "zoe")),
        kept(4, _video(4), line(ID, type="user", data={"n": 4})),
        kept(5, _video(5)),
    ]


def _one_by_one(scene: Scene) -> Source:
    """Return the source of *scene* for batches of one page, so that each has files of its own."""
    return Source({**scene.source.options, "maxPages": "1"})


def _scrubbed(pages: Sequence[Page]) -> list[Entry]:
    """Return the entries of *pages* as the eraser of the log leaves them when it is done."""
    every = list(entries(pages))
    targets = [named_by(*each).target for each in every if is_erasure(each[2])]
    scrubber = Scrubber(targets)
    return [(page, slot, scrubber.scrub_line(text, (page, slot))) for page, slot, text in every]


def _fold(found: Sequence[Entry]) -> list[Entry]:
    return sorted({object_key(parse_line(e[2])): e for e in found if has_object(e[2])}.values())


def _rows(tables: FeedTables, type: str) -> list[tuple[Any, ...]]:
    rows = tables.types[type].table.rows().select("id", "page", "parents").collect()
    return sorted((row["id"], row["page"], row["parents"]) for row in rows)


def test_an_erased_object_is_in_no_file(scene: Scene) -> None:
    """`history` has the entries of a log after the eraser, `latest` and the tables of types have
    neither the object nor the parent, also a table of a type that has no columns any more. Other
    rows, the position and the results of other engines stay right.
    """
    pages = _pages()
    for page in pages:
        scene.put(page)
    scene.follow(COLUMNS.replace("}}", '}, "note": "infer"}'), _one_by_one(scene))
    everything = [*pages, kept(6, line("z")), kept(7, _entry(as_parent=True)), kept(8)]
    for page in everything[len(pages) :]:
        scene.put(page)
    assert files_with(scene.folder / "lake", MARKER)

    scene.follow(COLUMNS)

    expected = _scrubbed(everything)
    tables = scene.tables(COLUMNS)
    assert files_with(scene.folder / "lake", MARKER, PARENT) == []
    assert scene.history() == expected
    assert scene.latest() == _fold(expected)
    assert _rows(tables, "video") == [("bob", 1, ["no/p"]), ("z", 6, []), ("zoe", 3, ["no/p"])]
    assert _rows(tables, "user") == [(ID, 4, []), ("u", 1, ["a/b"])]
    assert readers.arrow(scene, "main_type_note")["parents"].to_pylist() == [["c/d"]]
    assert readers.tables(scene)[:2] == (expected, _fold(expected))
    assert tables.history.through() == Place(8, 0x7FFFFF, (NOW + 8_000) // 1000)
    row = tables.history.rows().where("page = 2").collect()[0]
    assert (row["event"], row["id"], row["parents"]) == ("delete", "erased:7", [])
    assert (row["data"], row["tags"], row["at"].timestamp()) == (None, None, (NOW + 2_000) / 1000)

    scene.put(kept(9, _video(9, "new")), kept(10, _entry("bob")))
    scene.follow(COLUMNS, _one_by_one(scene))
    assert "bob" not in str(scene.history())
    assert [each[0] for each in _rows(scene.tables(COLUMNS), "video")] == ["new", "z", "zoe"]


def test_an_object_that_lives_on_loses_only_what_was_before(scene: Scene) -> None:
    """The page of the entry repeats the latest operation, which is then the object's row. A second
    erasure in the same batch has its own objects.
    """
    pages = _pages()
    before = Place(4, 0, (NOW + 4_000) // 1000).encode()
    pages.append(kept(6, _entry(before=before), _video(5)))
    pages.append(kept(7, _entry("zoe")))
    scene.put(*pages[:2])
    scene.follow(COLUMNS)
    scene.put(*pages[2:])

    scene.follow(COLUMNS)

    history = scene.history()
    assert history == _scrubbed(pages)
    assert [each[0] for each in history if f'"id":"{ID}"' in each[2] and "video" in each[2]] == [
        4,
        5,
        6,
    ]
    assert scene.latest() == _fold(history)
    videos = _rows(scene.tables(COLUMNS), "video")
    assert videos == [(ID, 6, [f"{MARKER}/p"]), ("bob", 1, ["no/p"])]
    assert files_with(scene.folder / "lake", "zoe") == []


def test_tables_of_a_log_that_was_erased_before(scene: Scene) -> None:
    """Erased entries are in `history` as they are, and the other tables do not have them."""
    pages = [*_pages(), kept(6, _entry())]
    erased = _scrubbed(pages)
    for page in pages:
        scene.put(kept(page.number, *(text for number, _, text in erased if number == page.number)))

    scene.follow(COLUMNS)

    assert scene.history() == scene.entries() == erased
    assert scene.latest() == _fold(scene.entries())
    assert [each[0] for each in _rows(scene.tables(COLUMNS), "video")] == ["bob", "zoe"]


def test_died_at_any_step_the_next_run_ends_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each step that changes a table the run is killed; in the end nothing is left."""
    pages = _pages()
    for page in pages:
        scene.put(page)
    scene.follow(COLUMNS, _one_by_one(scene))
    scene.put(kept(6, _entry()))
    fired = _dies(monkeypatch)

    while _fails(scene):
        """Run again."""

    assert len(fired) == 1 + 2 + 3 * 5, fired
    expected = _scrubbed([*pages, kept(6, _entry())])
    assert files_with(scene.folder / "lake", MARKER) == []
    assert scene.history() == expected
    assert scene.latest() == _fold(expected)
    assert [each[0] for each in _rows(scene.tables(COLUMNS), "video")] == ["bob", "zoe"]


def _dies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """End a run after each step that changes a table, once a step; return a list of the steps."""
    fired: list[str] = []

    def wrap(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def step(table: Table, *arguments: object) -> None:
            original(table, *arguments)
            point = f"{name} {table.kind}"
            if table.type != "user" and point not in fired:
                fired.append(point)
                raise Died

        monkeypatch.setattr(owner, name, step)

    for name in ("append", "merge", "change"):
        wrap(Table, name)
    for name in ("rewrite_files", "remove_empty_files", "rewrite_manifests", "expire_all"):
        wrap(files, name)
    return fired


def _fails(scene: Scene) -> bool:
    try:
        scene.follow(COLUMNS)
    except (Died, Py4JJavaError, PySparkException):
        return True
    return False


def test_a_table_that_fails_is_erased_by_the_next_run(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry stays in `history` until then, and later batches do not hide it."""
    pages = _pages()
    scene.put(*pages)
    scene.follow(COLUMNS)
    scene.put(kept(6, _entry()))
    with monkeypatch.context() as patched:
        run = TableEraser.run

        def fails(self: TableEraser) -> int:
            if self.table.type == "video":
                self.table.session.sql("SELECT missing")
            return run(self)

        patched.setattr(TableEraser, "run", fails)
        with pytest.raises(Exception, match="missing"):
            scene.follow(COLUMNS)
    found = scene.tables(COLUMNS).history.metadata()
    assert found is not None
    assert found.erasures == 6
    assert is_erasure(scene.history()[-1][2])
    scene.put(kept(7, line("z")))

    scene.follow(COLUMNS)

    assert scene.history() == _scrubbed([*pages, kept(6, _entry()), kept(7, line("z"))])
    assert files_with(scene.folder / "lake", MARKER) == []
    assert [each[0] for each in _rows(scene.tables(COLUMNS), "video")] == ["bob", "z", "zoe"]
