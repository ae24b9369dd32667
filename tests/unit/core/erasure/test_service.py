"""Requests for erasures: the entries that they append, and their reports."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from tests.unit.core.scene import FEED, TOMBSTONE_MS, Scene, op
from tidings.core import limits
from tidings.core.auth.keys import Key
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.erasure.entries import Entry, parse_entry
from tidings.core.erasure.forget import Forgetter
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.erasure.service import Erasures, Location
from tidings.core.errors import Chained, InvalidOperation, KeyReused, Unavailable
from tidings.core.model.cursors import Place
from tidings.core.model.filters import Filter
from tidings.core.model.operations import event_of, is_erasure, parse_line
from tidings.core.model.pages import Page

ENTRY = Entry("video", "x1", "ann", "a test")


def service(scene: Scene) -> Erasures:
    assert scene.host.erasures is not None
    return scene.host.erasures


def lines(scene: Scene, page: int) -> list[str]:
    return scene.log.read(FEED, page - 1, 1)[0].lines


@pytest.mark.parametrize("projected", [True, False])
def test_the_entry_has_the_parents_of_the_object(scene: Scene, projected: bool) -> None:
    """The parents are those of its latest operation, in the state or not; nothing follows it."""
    scene.projected(op(parents=["old"]))
    scene.post(op(parents=["user/ann", "b"]), op("y"))
    if projected:
        scene.project()
    erasure = service(scene).request(FEED, ENTRY)

    assert erasure.place == Place(3, 0, scene.now_ms // 1000)
    assert [parse_entry(each) for each in lines(scene, 3)] == [
        replace(ENTRY, parents=("user/ann", "b"))
    ]
    assert scene.log.log_counter(FEED).operations == 4


def test_an_unknown_or_deleted_object_has_no_parents(scene: Scene) -> None:
    """The log may have older entries of it all the same."""
    scene.projected(op("gone", parents=["a"]), op("gone", "delete", parents=["a"]))
    for name in ("gone", "never"):
        erasure = service(scene).request(FEED, replace(ENTRY, id=name))
        assert parse_entry(lines(scene, erasure.place.page)[0]).parents == ()


def test_the_record_is_known_before_and_after_the_state(scene: Scene) -> None:
    """The same one; listed once the state has it."""
    scene.projected(op())
    erasure = service(scene).request(FEED, ENTRY)
    assert service(scene).show(FEED, erasure.id) == erasure
    assert list(service(scene).list(FEED)) == []
    scene.project()
    stored = replace(erasure, version=1)
    assert service(scene).show(FEED, erasure.id) == stored
    assert list(service(scene).list(FEED)) == [stored]
    assert erasure == Erasure(
        erasure.id,
        "video",
        "x1",
        "ann",
        "a test",
        scene.now_ms,
        through=2,
        until_ms=scene.now_ms + TOMBSTONE_MS,
    )
    scene.set_checkpoint("state", 0)
    scene.project()
    assert list(service(scene).list(FEED)) == [stored]


@pytest.mark.parametrize(
    "text", ["", "now", "0" * 24, Place(1, 0, 0).encode(), Place(2, 1, 0).encode()]
)
def test_what_is_no_erasure_is_not_shown(scene: Scene, text: str) -> None:
    """Neither another entry of the log, nor another slot of the page."""
    scene.projected(op())
    service(scene).request(FEED, ENTRY)
    assert service(scene).show(FEED, text) is None


def test_the_state_becomes_a_tombstone(scene: Scene) -> None:
    """Like any deletion, so that sums, copies and readers need no rule of their own."""
    scene.projected(op(data="secret"))
    service(scene).request(FEED, ENTRY)
    scene.project()
    assert event_of(scene.rows()["video/x1"]) == "delete"
    assert "secret" not in scene.rows()["video/x1"]


def test_an_object_lives_on_if_its_latest_operation_stays(scene: Scene) -> None:
    """It is repeated after the entry; not if it is erased, too, or a deletion."""
    places = [scene.projected(op(data=number)).end for number in range(3)]
    for place, entries in ((places[0], 2), (replace(places[0], page=4), 1)):
        asked = replace(ENTRY, before=place.encode())
        page = service(scene).request(FEED, asked).place.page
        scene.project()
        assert len(lines(scene, page)) == entries
        if entries == 2:
            assert lines(scene, page)[1] == lines(scene, 3)[0]
            assert scene.rows()["video/x1"] == lines(scene, 3)[0]
    assert event_of(scene.rows()["video/x1"]) == "delete"
    page = service(scene).request(FEED, replace(ENTRY, before=places[0].encode())).place.page
    assert len(lines(scene, page)) == 1


@pytest.mark.parametrize("before", ["now", "0", "0" * 24, Place(9, 0, 5).encode(), "x"])
def test_a_place_that_the_log_does_not_have_is_refused(scene: Scene, before: str) -> None:
    """Nothing is written."""
    scene.post(op())
    with pytest.raises(InvalidOperation) as raised:
        service(scene).request(FEED, replace(ENTRY, before=before))
    assert raised.value.field == "before"
    assert scene.log.head(FEED) == 1


def test_a_change_in_the_meantime_is_seen(scene: Scene) -> None:
    """The entry has the parents after it; the number that was taken is filled."""
    scene.projected(op(parents=["a"]))
    take = scene.log.take

    def overtaken(feed: str, operations: int = 0) -> int:
        scene.log.take = take  # type: ignore[method-assign]
        scene.post(op(parents=["b"]))
        return take(feed, operations)

    scene.log.take = overtaken  # type: ignore[method-assign]
    erasure = service(scene).request(FEED, ENTRY)
    entries = [line for page in scene.log.read(FEED, 0) for line in page.lines]
    assert [is_erasure(line) for line in entries] == [False, False, True]
    assert parse_line(entries[-1]).parents == ("b",)
    assert erasure.place.page == 4


def test_a_retry_with_its_key_is_the_same_erasure(scene: Scene) -> None:
    """Although the object has changed since; with another request the key is refused."""
    scene.projected(op(parents=["a"]))
    first = service(scene).request(FEED, ENTRY, "key")
    scene.projected(op(parents=["b"]))
    assert service(scene).request(FEED, ENTRY, "key").id == first.id
    assert scene.log.head(FEED) == 3
    with pytest.raises(KeyReused):
        service(scene).request(FEED, replace(ENTRY, reason="another"), "key")


def test_a_copy_refuses(scene: Scene) -> None:
    """Before it reads anything."""

    def chained(feed: str) -> None:
        raise Chained(feed, "https://a.example/feeds/main")

    erasures = replace(service(scene), appender=replace(scene.appender, check_writable=chained))
    with pytest.raises(Chained):
        erasures.request(FEED, ENTRY)


def test_each_location_has_a_status(scene: Scene) -> None:
    """A consumer that has not acknowledged the entry is named."""
    scene.projected(op())
    erasure = service(scene).request(FEED, replace(ENTRY, as_parent=True))
    scene.project()
    for name, position in (("late", Place(1, 0, 0)), ("done", erasure.place), ("new", None)):
        consumer = Consumer(FEED, name, position=position)
        assert scene.consumers.write(FEED, name, 0, Change(consumer))

    named = Filter(ids=frozenset({"a*", f"{ENTRY.id}*"}))
    assert scene.consumers.write(FEED, "index", 0, Change(Consumer(FEED, "index", filter=named)))
    assert scene.keys.save(FEED, Key("k1", "", frozenset(), label=f"portal of {ENTRY.id}."))
    assert scene.keys.save(FEED, Key("k2", "", frozenset(), label=f"{ENTRY.id}0"))
    at_end = replace(erasure, phase=Phase.KEPT)

    def found(phase: Phase, **changed: bool) -> dict[str, str]:
        at = replace(erasure, phase=phase, **changed)  # type: ignore[arg-type]
        return {each.name: each.status for each in scene.host.erasure_reporter.locations(FEED, at)}

    begun = found(Phase.PARENTS)
    assert {begun[name] for name in ("log", "archive", "parents", "erasure entry")} == {"pending"}
    assert begun["backups"] == begun["copies"] == "outside"
    notes = {each.name: each.note for each in scene.host.erasure_reporter.locations(FEED, erasure)}
    assert notes["named consumers"] == "not acknowledged by: index, late, new"
    notes = {each.name: each.note for each in scene.host.erasure_reporter.locations(FEED, at_end)}
    assert "nothing was found" in notes["log"]
    assert notes["filters"].endswith(": consumer index, key k1")
    kept = found(Phase.KEPT)
    assert [name for name, status in kept.items() if status == "pending"] == [
        "erasure entry",
        "named consumers",
        "exports",
    ]
    assert found(Phase.LOG, final=True) == kept
    assert found(Phase.DONE)["erasure entry"] == "done"


def test_tables_can_be_restored_for_some_time(scene: Scene) -> None:
    """This time begins when the job has erased the data; a server has no such recovery."""
    at = service(scene).request(FEED, ENTRY)
    recoverable = replace(scene.host.erasure_reporter, recovery_ms=1000)

    def found(erasure: Erasure) -> list[tuple[str, int]]:
        locations = recoverable.locations(FEED, erasure)
        return [(e.status, e.until_ms) for e in locations if e.name == "point-in-time recovery"]

    assert found(at) == [("pending", 0)]
    now_ms = scene.now_ms
    assert found(replace(at, done_ms=now_ms)) == [("pending", now_ms + 1000)]
    assert found(replace(at, done_ms=now_ms - 1000)) == [("done", now_ms)]
    names = {each.name for each in scene.host.erasure_reporter.locations(FEED, at)}
    assert "point-in-time recovery" not in names


def test_the_files_of_syncs_are_gone_after_a_time(scene: Scene) -> None:
    """A stage deletes them, and a server has none."""
    scene.projected(op())
    erasure = service(scene).request(FEED, ENTRY)

    def found(file_rewritten_ms: int | None = None) -> Location:
        reporter = replace(scene.host.erasure_reporter, file_rewritten_ms=file_rewritten_ms)
        places = reporter.locations(FEED, erasure)
        return next(each for each in places if each.name == "exports")

    end = erasure.requested_ms + limits.SYNC_FILES_GONE_MS
    assert (found().status, found().until_ms) == ("pending", end)
    assert found(file_rewritten_ms=0).status == "outside"
    scene.now_ms = end
    assert found().status == "done"


def test_an_object_that_keeps_changing_is_not_erased(scene: Scene) -> None:
    """The error asks the client to try again, and no entry was written."""
    scene.projected(op())
    take = scene.log.take

    def always(feed: str, operations: int = 0) -> int:
        scene.log.take = take  # type: ignore[method-assign]
        scene.post(op())
        scene.log.take = always  # type: ignore[method-assign]
        return take(feed, operations)

    scene.log.take = always  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="kept changing"):
        service(scene).request(FEED, ENTRY)
    entries = [line for page in scene.log.read(FEED, 0) for line in page.lines]
    assert not any(map(is_erasure, entries))


DAY_MS = 86_400_000
FOREVER = 2**60


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.configure(forget_after_days=2)
    return made


def forgetter(scene: Scene) -> Forgetter:
    assert scene.host.forgetter is not None
    return scene.host.forgetter


def erased(scene: Scene) -> list[str]:
    """Run the search; return the ids of the objects in all entries of erasures so far."""
    assert not forgetter(scene).run(FEED, FOREVER)
    scene.project()
    lines = [each for page in scene.log.read(FEED, 0) for each in page.lines]
    return [parse_entry(each).id for each in lines if is_erasure(each)]


def test_22_8_a_deleted_object_is_erased_after_its_time(scene: Scene) -> None:
    """P22.8: with the parents of the deletion, and a reason that names the setting."""
    scene.projected(op("a"), op("b"), op("b", "delete", parents=["p"]))
    scene.now_ms += 2 * DAY_MS - 1
    assert erased(scene) == []
    scene.now_ms += 1
    assert erased(scene) == ["b"] == erased(scene)
    (entry,) = scene.log.read(FEED, 1)[0].lines
    assert parse_entry(entry) == Entry("video", "b", "setting", "forget-after", ("p",))
    scene.now_ms += 3 * DAY_MS
    assert erased(scene) == ["b"], "the erasure is a deletion, too"


def test_22_8_an_object_that_exists_again_stays(scene: Scene) -> None:
    """P22.8: one that was deleted again waits for its time from then on."""
    scene.projected(op("a"), op("a", "delete"), op("b"), op("b", "delete"))
    scene.now_ms += DAY_MS
    scene.projected(op("a", "insert"), op("b", "insert"), op("b", "delete"))
    scene.now_ms += DAY_MS
    assert erased(scene) == []
    scene.post(op("a"))  # not in the state yet
    scene.now_ms += DAY_MS
    assert erased(scene) == ["b"]


def test_22_8_nothing_is_erased_without_the_setting(scene: Scene) -> None:
    """P22.8: nor in a copy, which receives the erasures of its master."""
    scene.projected(op("a"), op("a", "delete"))
    scene.now_ms += 9 * DAY_MS
    copy = replace(forgetter(scene), chained={FEED})
    assert not copy.run(FEED, FOREVER)
    scene.configure(forget_after_days=0)
    assert erased(scene) == []


def test_22_8_the_search_continues_and_reads_each_page_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P22.8: a run that ends early, or is killed, leaves the rest to the next one."""
    monkeypatch.setattr("tidings.core.limits.FORGET_PAGES", 2)
    for name in "abcde":
        scene.projected(op(name), op(name, "delete"))
    scene.now_ms += 2 * DAY_MS
    steady = count()
    search = replace(forgetter(scene), runtime=replace(scene.runtime, steady=lambda: next(steady)))
    read: list[int] = []
    find = search._pages

    def pages(feed: str, after: int) -> list[Page]:
        found = list(find(feed, after))
        read.extend(page.number for page in found)
        return found

    monkeypatch.setattr(Forgetter, "_pages", lambda self, feed, after: pages(feed, after))
    assert search.run(FEED, 0), "more pages are old enough"
    assert search.run(FEED, 0)
    assert not search.run(FEED, FOREVER)
    assert read[:5] == [1, 2, 3, 4, 5] and erased(scene) == ["a", "b", "c", "d", "e"]


def test_22_8_deletions_in_the_archive_are_found(scene: Scene) -> None:
    """P22.8: also if the log was trimmed before the setting was turned on."""
    scene.projected(op("a"), op("a", "delete"))
    scene.projected(op("b"), op("b", "delete"))
    scene.archived()
    scene.log.raise_floor(FEED, 2)
    scene.now_ms += 2 * DAY_MS
    assert erased(scene) == ["a", "b"]


def test_11_5_ids_stay_if_they_are_not_personal(scene: Scene) -> None:
    """P11.5: the job asks the profile."""
    progress = scene.host.erasure_progress
    assert not progress.keeps_ids(FEED)
    scene.configure(ids_personal=False)
    assert progress.keeps_ids(FEED)
