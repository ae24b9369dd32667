"""The job that erases: the content of each store afterwards, also if it is killed at any point."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.fakes import MemoryLedger
from tests.unit.core.following import caught_up
from tests.unit.core.scene import FEED, TOMBSTONE_MS, Host, Scene, line, op
from tidings.core import limits
from tidings.core.archive.generations import lost_parts
from tidings.core.archive.segments import Generation, encode
from tidings.core.auth.keys import Key
from tidings.core.changeagent.changes import Change as Change_
from tidings.core.changeagent.changes import line_of, tags_of
from tidings.core.consumers.consumer import Change, Consumer, Failure, Parked
from tidings.core.erasure.entries import Entry, parse_entry
from tidings.core.erasure.eraser import Eraser
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.errors import Unavailable
from tidings.core.model.cursors import Place
from tidings.core.model.filters import Filter
from tidings.core.model.operations import is_erased, parse_line
from tidings.core.replication.source import Source
from tidings.core.state.rows import project

MARKER = "the-secret"
ENTRY = Entry("video", "x-secret-id", "ann", "a test")
PARENT = "video/x-secret-id"
FOREVER = 2**60


def eraser(scene: Scene, **stores: Any) -> Eraser:
    """Return the job of a new process, with *stores* instead of some of the scene's."""
    return host(scene, **stores).eraser


def host(scene: Scene, **stores: Any) -> Host:
    made = Host(scene)
    vars(made.stores).update(stores)
    return made


def erase(scene: Scene, entry: Entry = ENTRY) -> Erasure:
    """Request an erasure and run everything, up to the phase KEPT."""
    found = scene.host.erasures.request(FEED, entry)
    work(scene)
    return record(scene, found.id)


def follow_all(scene: Scene) -> None:
    """Run all followers."""
    scene.project()
    scene.push()
    scene.archived()


def work(scene: Scene) -> None:
    """Run all followers and the job until nothing is left to do now."""
    for _ in range(3):
        follow_all(scene)
        assert not eraser(scene).run(FEED, FOREVER)


def expire(scene: Scene) -> None:
    """Let the tombstone expire, and the time to resume after it."""
    for wait_ms in (TOMBSTONE_MS, limits.ERASURE_GRACE_MS):
        scene.now_ms += wait_ms
        work(scene)


def record(scene: Scene, erasure_id: str) -> Erasure:
    found = scene.erasures.erasure(FEED, erasure_id)
    assert found is not None
    return found


def archived(scene: Scene) -> Iterator[str]:
    for span in scene.archive.list(FEED, 0, 1000):
        body = scene.archive.get(FEED, span)
        assert body is not None
        yield gzip.decompress(body).decode()


def everything(scene: Scene) -> str:
    """Return the text of all that the stores have of the feed."""
    pages = scene.log.read(FEED, 0)
    removed = scene.removed_parents.read(FEED, 0, 2**40)
    parked = [
        each
        for consumer in scene.consumers.consumers(FEED)
        for each in scene.consumers.parked(FEED, consumer.name)
    ]
    return "\n".join(
        [
            *(page.text for page in pages),
            *(json.dumps(each.by_slot) for each in removed),
            *scene.rows().values(),
            *(f"{each.line} {each.error}" for each in parked),
            *archived(scene),
            *map(repr, scene.erasures.erasures(FEED)),
            *map(repr, scene.consumers.consumers(FEED)),
            *map(repr, scene.keys.keys(FEED)),
        ]
    )


def fold(scene: Scene) -> dict[str, str]:
    """Return the state as the log has it."""
    rows = project(scene.log.read(FEED, 0), tombstone_ms=TOMBSTONE_MS)
    return {row.key: row.line for row in rows}


def secret(name: str = "x-secret-id", **fields: Any) -> dict[str, Any]:
    return op(name, data={"text": MARKER}, **fields)


def used(scene: Scene) -> list[tuple[int, int]]:
    """Use the feed in every way that leaves data of the object; return its pages and slots."""
    scene.keep_removed_parents()
    scene.projected(secret(parents=["user/ann"]), op("y"))
    scene.projected(*(op(f"z{n}") for n in range(50)), secret(parents=["user/bob"]))
    scene.push()
    scene.archived()
    scene.projected(op("y", parents=[PARENT, "user/ann"]), op("w", parents=[PARENT]))
    scene.projected(op("y", parents=[PARENT]), op("w", parents=["user/ann"]))
    page = scene.projected(secret(), secret(event="delete"), secret(event="insert"))
    parked = Parked(page.id_prefix + "000002", page.lines[2], f"bad: {MARKER}", scene.now_ms, 2)
    other = Parked(page.id_prefix + "000001", line("other"), "bad", scene.now_ms, 2)
    for version, each in enumerate((parked, other)):
        consumer = Consumer(FEED, "index", position=page.end, parked=version + 1)
        assert scene.consumers.write(FEED, "index", version, Change(consumer, park=each))
    scene.push()
    scene.archived()
    return [(page.number, slot) for page in scene.log.read(FEED, 0) for slot, _ in page.entries()]


CHANGE = "c0ffee"


def used_elsewhere(scene: Scene) -> None:
    """Leave data in a change, in tags, in a worker's error and in an ended key."""
    change = Change_(f'"{MARKER}"', (PARENT, "kept"))
    scene.appender.append(FEED, [line_of(change, name=CHANGE, now_ms=scene.now_ms)])
    page = scene.projected(op("t", tags=[PARENT, "kept"]), secret())
    failure = Failure(page.id_prefix + "000001", f"cannot write {MARKER}", scene.now_ms)
    consumer = Consumer(FEED, "failed", failure=failure)
    assert scene.consumers.write(FEED, "failed", 0, Change(consumer))
    bound = Filter(ids=frozenset({ENTRY.id}))
    key = Key("ended", "", frozenset(), bound, label=f"of {ENTRY.id}", revoked_ms=1)
    assert scene.keys.save(FEED, key)
    scene.push()
    scene.archived()


def test_every_text_of_the_object_is_erased(scene: Scene) -> None:
    """Also outside its operations; a change is erased by the type and id that consumers see."""
    used_elsewhere(scene)
    found = erase(scene, replace(ENTRY, as_parent=True))
    assert (found.entries, found.corrected, found.texts) == (3, 1, 2)
    change = scene.log.read(FEED, 0)[0].lines[0]
    assert tags_of(change) == ["kept"] and MARKER in change
    assert json.loads(scene.rows()["video/t"])["tags"] == ["kept"]
    (failed,) = scene.consumers.consumers(FEED)
    assert failed.failure is not None and failed.failure.error == ""
    (key,) = scene.keys.keys(FEED)
    assert (key.bound.types, key.label, key.revoked_ms) == (frozenset(), "", 1)

    erased = erase(scene, replace(ENTRY, type="change", id=CHANGE))
    assert (erased.entries, erased.parts, erased.has_found) == (1, 1, True)
    assert MARKER not in everything(scene)
    expire(scene)
    text = everything(scene)
    assert ENTRY.id not in text and CHANGE not in text


@pytest.mark.parametrize(
    ("slot", "error", "kept"),
    [
        (0, "the disk is full", True),  # the entry of another object
        (0, f"after {ENTRY.id}: the disk is full", False),
        (1, "no such column", False),
        (None, "no such column", False),  # it may quote any object
    ],
)
def test_an_error_of_a_worker_is_erased_if_it_may_quote_the_object(
    scene: Scene, slot: int | None, error: str, kept: bool
) -> None:
    """Also if the erasure has found nothing else; it does not count as found then."""
    page = scene.projected(op("y"), secret())
    id_ = "" if slot is None else f"{page.id_prefix}{slot:06x}"
    consumer = Consumer(FEED, "n", failure=Failure(id_, error, scene.now_ms))
    assert scene.consumers.write(FEED, "n", 0, Change(consumer))
    erase(scene)
    (stored,) = scene.consumers.consumers(FEED)
    assert stored.failure is not None and (stored.failure.error == error) is kept


def test_an_erasure_that_finds_nothing_says_so(scene: Scene) -> None:
    """It is reported once, and stays so when its own entry is erased."""
    scene.projected(op("y"))
    said = list[str]()
    found = scene.host.erasures.request(FEED, ENTRY)
    follow_all(scene)
    process = host(scene)
    vars(process)["on_nothing_erased"] = lambda _, erasure: said.append(erasure.id)
    job = process.eraser
    assert not job.run(FEED, FOREVER)
    assert said == [found.id]
    expire(scene)
    done = record(scene, found.id)
    assert (done.phase, done.has_found) == (Phase.DONE, False)


def test_no_store_has_the_object_any_more(scene: Scene) -> None:
    """Entries keep their places, the state is the fold of the log, and the record counts."""
    places = used(scene)
    before = {place.number: place for place in scene.log.read(FEED, 0)}
    found = erase(scene)

    assert MARKER not in everything(scene)
    assert found.phase is Phase.KEPT and found.done_ms == scene.now_ms
    assert (found.entries, found.pages, found.parts, found.parked) == (5, 3, 2, 1)
    for page in scene.log.read(FEED, 0, 5):
        assert replace(page, body=before[page.number].body) == before[page.number]
    after = [(page.number, slot) for page in scene.log.read(FEED, 0) for slot, _ in page.entries()]
    assert after[: len(places)] == places
    assert fold(scene) == scene.rows()
    ids = [parse_line(each).id for each in scene.log.read(FEED, 0)[4].lines]
    assert ids == ["erased:6"] * 3
    left = scene.removed_parents.read(FEED, 2, 2)[0].by_slot
    assert "user/ann" not in json.dumps(left)
    index = scene.consumers.parked(FEED, "index")
    assert [is_erased(each.line) for each in index] == [False, True]
    assert index[0].error == "bad"


def test_the_entry_is_erased_when_the_tombstone_expires(scene: Scene) -> None:
    """Then no store has the id any more, nor has the record."""
    used(scene)
    found = erase(scene)
    text = everything(scene)
    assert ENTRY.id in text and ENTRY.reason in text
    for wait_ms in (TOMBSTONE_MS - 1, 1, limits.ERASURE_GRACE_MS - 1):
        scene.now_ms += wait_ms
        work(scene)
        assert record(scene, found.id).phase is Phase.KEPT
    scene.now_ms += 1
    work(scene)

    done = record(scene, found.id)
    assert (done.phase, done.object_id) == (Phase.DONE, "")
    text = everything(scene).replace(PARENT, "")  # others still have it as a parent
    assert ENTRY.id not in text
    assert "video/x-secret-id" not in scene.rows()
    assert scene.erasures.unfinished(FEED) == []


@pytest.mark.parametrize("final", [False, True])
def test_the_value_is_removed_from_the_parents_of_others(scene: Scene, final: bool) -> None:
    """By corrections first, so that consumers learn of it; the rest of these objects stays."""
    used(scene)
    rows = scene.rows()
    found = erase(scene, replace(ENTRY, as_parent=True))
    assert found.corrected == 1
    parents = [
        parse_line(each).parents for page in scene.log.read(FEED, 0, 5) for each in page.lines
    ]
    assert all(PARENT not in each for each in parents)
    assert fold(scene) == scene.rows()
    assert scene.rows()["video/y"] == rows["video/y"].replace(f'"{PARENT}"', "")
    assert scene.rows()["video/w"] == rows["video/w"]
    removed = {each.page: each.by_slot for each in scene.removed_parents.read(FEED, 0, 9)}
    assert PARENT not in str({page: left for page, left in removed.items() if page < 6})
    assert removed[7] == {0: (PARENT,)}  # consumers with `leave` need it
    if final:
        expire(scene)
        assert record(scene, found.id).phase is Phase.DONE
        assert "secret" not in everything(scene)


@pytest.mark.parametrize("final", [False, True])
def test_a_consumer_that_had_the_object_by_an_earlier_parent_is_told(
    scene: Scene, final: bool
) -> None:
    """It has not received the entry that removed this parent, which is erased now."""
    scene.keep_removed_parents()
    first = scene.projected(secret(parents=["p"]))
    scene.projected(secret(parents=["q"]))
    scene.projected(secret(parents=["r"]), op("y"))
    found = erase(scene)
    removed = {each.page: each.by_slot for each in scene.removed_parents.read(FEED, 0, 9)}
    assert removed == {1: {}, 2: {}, 3: {}, 4: {0: ("p", "q")}}
    for parent, event in (("p", "leave"), ("q", "leave"), ("r", "delete")):
        wanted = Filter(parents=frozenset({parent}), leave=True)
        events = caught_up(scene, first.end.encode(), wanted)
        assert [each.name for each in events] == [event]
    if final:
        expire(scene)
        assert record(scene, found.id).phase is Phase.DONE
        assert scene.removed_parents.read(FEED, 4, 4)[0].by_slot == {}


def test_a_deleted_object_loses_the_parent_and_stays_deleted(scene: Scene) -> None:
    """A correction of a tombstone is a deletion."""
    scene.projected(op("y", parents=[PARENT]), op("y", "delete", parents=[PARENT]))
    erase(scene, replace(ENTRY, as_parent=True))
    assert parse_line(scene.rows()["video/y"]).event == "delete"
    assert PARENT not in scene.rows()["video/y"]
    assert fold(scene) == scene.rows()


def test_only_entries_before_a_place_are_erased(scene: Scene) -> None:
    """The object lives on, and later entries stay letter by letter."""
    scene.projected(secret(), op("y"))
    page = scene.projected(op("x-secret-id", data="kept"))
    before = Place(page.number, 0, page.seconds).encode()
    found = erase(scene, replace(ENTRY, before=before))
    assert MARKER not in everything(scene)
    assert scene.log.read(FEED, 1, 1)[0].lines == page.lines
    assert parse_line(scene.rows()["video/x-secret-id"]).event == "update"
    assert fold(scene) == scene.rows()
    expire(scene)
    assert record(scene, found.id).phase is Phase.DONE
    assert scene.rows()["video/x-secret-id"] == page.lines[0]
    assert fold(scene) == scene.rows()


def test_ids_are_kept_if_the_feed_says_so(scene: Scene) -> None:
    """Only the content goes."""
    scene.projected(secret())
    scene.host.erasures.request(FEED, ENTRY)
    follow_all(scene)
    scene.configure(ids_personal=False)
    assert not eraser(scene).run(FEED, FOREVER)
    assert MARKER not in everything(scene)
    assert parse_line(scene.log.read(FEED, 0)[0].lines[0]).id == ENTRY.id


def test_the_ledger_has_it_until_it_is_done(scene: Scene) -> None:
    """All of its request, so that it can be requested again; also if another feed accepted it."""
    scene.projected(secret())
    ledger = MemoryLedger()
    service = replace(scene.host.erasures, ledger=ledger)
    found = service.request(FEED, ENTRY)
    (kept,) = ledger.entries(FEED)
    assert kept == replace(found, through=0, until_ms=0)
    assert service.request_again(FEED) == []
    ledger.remove(FEED, found.id)
    follow_all(scene)
    job = eraser(scene, erasure_ledger=ledger)
    assert not job.run(FEED, FOREVER)
    assert [each.id for each in ledger.entries(FEED)] == [found.id]
    scene.log.raise_floor(FEED, 3)  # then it is not postponed
    scene.now_ms += TOMBSTONE_MS
    assert not job.run(FEED, FOREVER)
    assert ledger.entries(FEED) == []

    asked = replace(ENTRY, id="lost", as_parent=True)
    lost = replace(found, id="f" * 24, object_id="lost", as_parent=True)
    ledger.add(FEED, lost)
    (again,) = service.request_again(FEED)
    assert parse_entry(scene.log.read(FEED, 2)[0].lines[0]) == asked
    assert [each.id for each in ledger.entries(FEED)] == [again.id]


def test_the_log_is_not_rewritten_before_all_followers_have_passed(scene: Scene) -> None:
    """A follower that lags may hold old pages in memory, and would write them."""
    scene.projected(secret())
    scene.push()
    scene.archived()
    found = scene.host.erasures.request(FEED, ENTRY)
    for follow in (scene.project, scene.push, scene.archived):
        assert not eraser(scene).run(FEED, FOREVER)
        assert MARKER in scene.log.read(FEED, 0)[0].text
        follow()
    assert not eraser(scene).run(FEED, FOREVER)
    assert record(scene, found.id).phase is Phase.KEPT


def test_what_a_late_process_may_write_is_rewritten_when_it_has_ended(scene: Scene) -> None:
    """It may have old pages from before the log was rewritten; other erasures wait as well."""
    process = host(scene)
    process.erasure_settle_ms = 60_000
    late = process.eraser
    used(scene)
    found = scene.host.erasures.request(FEED, ENTRY)
    follow_all(scene)
    assert not late.run(FEED, FOREVER)
    assert record(scene, found.id).phase is Phase.PARKED
    assert MARKER not in "".join(page.text for page in scene.log.read(FEED, 0))
    assert MARKER in "".join(archived(scene))

    other = scene.host.erasures.request(FEED, replace(ENTRY, id="y"))
    follow_all(scene)
    scene.now_ms += 59_999
    assert not late.run(FEED, FOREVER)
    assert record(scene, other.id).phase is Phase.WAITING
    assert MARKER in "".join(archived(scene))

    scene.now_ms += 1
    assert not late.run(FEED, FOREVER)
    assert [record(scene, each.id).phase for each in (found, other)] == [Phase.KEPT, Phase.PARKED]
    assert MARKER not in everything(scene)


def test_all_that_wait_share_one_reading(scene: Scene) -> None:
    """Reading is what an erasure costs; an erasure of nothing is done as well."""
    for n in range(300):
        scene.projected(secret(f"x{n}"))
    scene.push()
    scene.archived()
    for n in range(20):
        scene.host.erasures.request(FEED, replace(ENTRY, id=f"x{n}"))
    scene.host.erasures.request(FEED, replace(ENTRY, id="never"))
    follow_all(scene)
    reads = scene.reads()
    assert not eraser(scene).run(FEED, FOREVER)
    assert len(reads) <= 5
    assert [each.entries for each in scene.erasures.erasures(FEED)] == [1] * 20 + [0]
    assert {each.phase for each in scene.erasures.erasures(FEED)} == {Phase.KEPT}


def calls_in(run: Callable[[], object]) -> int:
    """Return the number of functions that *run* calls."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


class Counting:
    """A log that counts the calls of functions within its transactions."""

    def __init__(self, log: Any) -> None:
        self._log, self.most = log, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def together(self, run: Callable[[], Any]) -> Any:
        profiler, result = sys.getprofile(), list[Any]()
        calls = calls_in(lambda: result.append(self._log.together(run)))
        sys.setprofile(profiler)
        self.most = max(self.most, calls)
        return result[0]


def work_of(erasures: int, lines: int, name: str, *, as_parent: bool) -> int:
    """Return the calls that it takes to erase *erasures* of *lines* objects, on two pages."""
    scene, calls = Scene(), 0
    for page in range(2):
        some = range(page * lines // 2, (page + 1) * lines // 2)
        scene.projected(*(op(f"{name}{n}", parents=[f"video/{name}{n + 1}"]) for n in some))
    for n in range(erasures):
        entry = replace(ENTRY, id=f"{name}{n + 1}", as_parent=as_parent)
        scene.host.erasures.request(FEED, entry)
    log = Counting(scene.log)
    for _ in range(3):
        follow_all(scene)
        calls += calls_in(partial(eraser(scene, log=log).run, FEED, FOREVER))
    done = scene.erasures.erasures(FEED)
    assert {each.phase for each in done} == {Phase.KEPT}
    assert sum(each.corrected for each in done) == as_parent  # the others are erased themselves
    assert log.most < 100, "a transaction, which a server runs in its event loop, parses lines"
    return calls


@pytest.mark.parametrize("as_parent", [False, True])
@pytest.mark.parametrize("name", ["x", 'x"'])  # the second one is found by a JSON parser
def test_the_work_grows_with_the_lines_alone(name: str, as_parent: bool) -> None:
    """Not with lines times erasures."""
    for_each = [
        (
            work_of(60, lines, name, as_parent=as_parent)
            - work_of(20, lines, name, as_parent=as_parent)
        )
        / 40
        for lines in (200, 2_000)
    ]
    assert for_each[1] - for_each[0] < 1_800 / 4, "each erasure looks at each line"


def test_a_run_ends_when_its_time_is_over(scene: Scene) -> None:
    """After at least one step; the next run continues."""
    for n in range(3 * limits.ERASURE_PAGES):
        scene.post(secret(f"x{n % 250}"))
    scene.project()
    found = scene.host.erasures.request(FEED, replace(ENTRY, id="x0"))
    follow_all(scene)
    runs = 0
    while eraser(scene).run(FEED, 0):
        runs += 1
    assert runs > 5
    done = record(scene, found.id)
    assert (done.phase, done.entries) == (Phase.KEPT, 2)


def test_a_part_that_ends_after_the_entry_is_rewritten(scene: Scene) -> None:
    """And a part of later pages alone is not read."""
    scene.projected(secret())
    found = scene.host.erasures.request(FEED, ENTRY)
    scene.projected(op("y"))
    scene.push()
    scene.archived()
    scene.projected(op("z"))
    scene.archived()
    get, read = scene.archive.get, list[str]()
    scene.archive.get = lambda feed, span: read.append(span.name) or get(feed, span)  # type: ignore
    assert not eraser(scene).run(FEED, FOREVER)
    assert len(read) == 1
    scene.archive.get = get  # type: ignore[method-assign]
    assert MARKER not in everything(scene)
    assert record(scene, found.id).parts == 1


def test_another_erasure_keeps_the_entry_of_the_first(scene: Scene) -> None:
    """A copy that has not seen it yet needs it; each erases its own entry."""
    scene.projected(secret())
    first = erase(scene)
    second = erase(scene)
    assert second.entries == 0
    text = "\n".join(page.text for page in scene.log.read(FEED, 0))
    assert text.count('"erase":true') == 2
    expire(scene)
    assert record(scene, first.id).phase is record(scene, second.id).phase is Phase.DONE
    assert "secret" not in everything(scene)


def test_a_copy_waits_for_the_corrections_of_its_upstream(scene: Scene) -> None:
    """It must not append any itself."""
    scene.projected(op("y", parents=[PARENT]), secret())
    scene.push()
    scene.archived()
    found = scene.host.erasures.request(FEED, replace(ENTRY, as_parent=True))
    follow_all(scene)
    process = host(scene)
    process.copies = {FEED: Source("https://master.example/feeds/main")}
    copy = process.eraser
    assert not copy.run(FEED, FOREVER)
    assert record(scene, found.id).phase is Phase.PARENTS
    scene.projected(op("y"))
    scene.push()
    scene.archived()
    assert not copy.run(FEED, FOREVER)
    assert record(scene, found.id).phase is Phase.KEPT
    assert scene.log.head(FEED) == 3


class Killed(Exception):
    """The process was killed."""


def calls_of(scene: Scene, act: Callable[[], None]) -> Eraser:
    """Return the job with stores that call *act* after each call."""

    class Watched:
        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            method = getattr(self._store, name)

            def call(*arguments: Any, **named: Any) -> Any:
                result = method(*arguments, **named)
                act()
                return result

            return call

    names = [
        "erasures",
        "rewrites",
        "log",
        "state",
        "removed_parents",
        "consumers",
        "archive",
        "keys",
    ]
    stores = vars(scene.host.stores)
    return eraser(scene, **{name: Watched(stores[name]) for name in [*names, "archive"]})


def is_killed(scene: Scene, left: list[int]) -> bool:
    """Run the job, and kill it after the number of calls in *left*; return False if it ends."""

    def act() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    try:
        calls_of(scene, act).run(FEED, FOREVER)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("as_parent", [False, True])
def test_a_job_that_is_killed_after_any_call_continues(as_parent: bool) -> None:
    """The result is the same, with the counts of entries."""
    at, entries = 0, set[tuple[int, int]]()
    while True:
        scene, left, at = Scene(), [at], at + 1
        used(scene)
        used_elsewhere(scene)
        found = scene.host.erasures.request(FEED, replace(ENTRY, as_parent=as_parent))
        follow_all(scene)

        killed = is_killed(scene, left)
        work(scene)
        erase(scene, replace(ENTRY, type="change", id=CHANGE))
        assert MARKER not in everything(scene)
        assert fold(scene) == scene.rows()
        kept = record(scene, found.id)
        assert kept.phase is Phase.KEPT
        entries.add((kept.entries, kept.pages))
        expire(scene)
        assert record(scene, found.id).phase is Phase.DONE
        text = everything(scene) if as_parent else everything(scene).replace(PARENT, "")
        assert ENTRY.id not in text
        if not killed:
            break
    assert at > 30 and len(entries) == 1


def test_two_jobs_at_once_do_no_harm(scene: Scene) -> None:
    """The second one finds a record that has changed, and gives up for now."""
    used(scene)
    scene.host.erasures.request(FEED, ENTRY)
    follow_all(scene)
    done = list[bool]()

    def act() -> None:
        if not done:
            done.append(True)
            eraser(scene).run(FEED, FOREVER)

    with pytest.raises(Unavailable, match="another process"):
        calls_of(scene, act).run(FEED, FOREVER)
    work(scene)
    assert MARKER not in everything(scene)


def test_pages_that_a_restore_lost_are_removed(scene: Scene) -> None:
    """No reader reads them, but a process of before the restore may have archived the object."""
    used(scene)
    head = scene.log.head(FEED)
    scene.archive.begin(FEED, 1, Generation(0, head, head + 5))
    scene.archive.put(FEED, *encode([replace(scene.post(secret()), number=head + 1)]))
    assert lost_parts(scene.archive, FEED)
    erase(scene)
    assert lost_parts(scene.archive, FEED) == []
