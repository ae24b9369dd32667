"""Sums of the state: how they are added up, and that the follower keeps them whatever happens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import MemoryState
from tests.unit.core.scene import FEED, Scene, op
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.model.feeds import STATE
from tidings.core.model.pages import Page
from tidings.core.state.projector import SumDemand, SumKeeper
from tidings.core.state.rows import Row, bucket_of, project
from tidings.core.state.sums import ALL, MODULO, OTHERS, Sums, digest, note_of, recall_sums

TOMBSTONE_MS = 10**12
VECTORS = [  # those of PROTOCOL 20
    ("video/x32", 1, 0, "d0e5e1accc0c818a"),
    ("video/x32", 0x123456789A, 0x0003E7, "87e4d91e7c1b04bc"),
    ("a%2Fb/ä€𝄞 ", 7, 2, "b15606754441e4a4"),
]


@pytest.mark.parametrize(("key", "page", "slot", "expected"), VECTORS)
def test_20_2_digests(key: str, page: int, slot: int, expected: str) -> None:
    """These are the values that other implementations compute."""
    assert f"{digest(key, page, slot):016x}" == expected


def folded(scene: Scene) -> dict[str, list[int]]:
    """Return the checksums of the log up to the checkpoint of the state, by type."""
    checkpoint = scene.followers.checkpoints(FEED).get(STATE, 0)
    pages = [page for page in scene.log.read(FEED, 0) if page.number <= checkpoint]
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0] * limits.BUCKETS)
    for row in project(pages, tombstone_ms=TOMBSTONE_MS):
        if not row.deleted:
            of = sums[row.key.partition("/")[0]]
            of[row.bucket] = (of[row.bucket] + digest(row.key, row.page, row.slot)) % MODULO
    return sums


def kept(scene: Scene) -> Sums | None:
    """Return the checksums that a reader of the store and the note gets."""
    leases = [lease for lease in scene.followers.leases(FEED) if lease.name == STATE]
    if not leases:
        return Sums(0)
    return recall_sums(scene.sums.read(FEED), leases[0].note, leases[0].checkpoint)


def assert_kept(scene: Scene) -> None:
    """Assert that no sum is unknown, and all equal those of the log."""
    sums, expected = kept(scene), folded(scene)
    assert sums is not None
    assert sums.unknown == frozenset()
    assert sums.page == scene.followers.checkpoints(FEED)[STATE]
    for name in {"video", "user", "other", *expected}:
        assert sums.of(name) == expected[name]
    assert sums.totals == total(expected)


def total(of: dict[str, list[int]]) -> list[int]:
    return [sum(each[at] for each in of.values()) % MODULO for at in range(limits.BUCKETS)]


def test_rows_come_change_and_go(scene: Scene) -> None:
    """Each type has its own sums; deleted objects do not count."""
    scene.post(op("a"), op("b"), op("c", type="user"))
    scene.project()
    assert_kept(scene)

    scene.post(op("a"), op("b", "delete"), op("a"), op("d", "delete"))
    scene.project()
    assert_kept(scene)
    scene.post(op("b"), op("c", "delete", type="user"))
    scene.project()
    assert_kept(scene)
    sums = kept(scene)
    assert sums is not None and not any(sums.of("user"))


def test_a_feed_that_holds_nothing_has_sums(scene: Scene) -> None:
    """They are zero."""
    assert recall_sums(None, note_of(Sums(0), {}), 0) == Sums(0)
    assert Sums(0).totals == [0] * limits.BUCKETS == Sums(0).of("any")


def test_few_changes_are_a_note(scene: Scene) -> None:
    """The first store has the types; then sums are stored only when a note is full."""
    scene.post(op("first"))
    scene.project()
    stored = scene.sums.read(FEED)
    for number in range(20):
        scene.post(op(f"x{number}"))
        scene.project()
    assert scene.sums.read(FEED) == stored
    (lease,) = [each for each in scene.followers.leases(FEED) if each.name == STATE]
    assert 0 < len(lease.note) <= limits.NOTE_BYTES_MAX

    scene.post(*[op(f"y{number}") for number in range(500)])
    scene.project()
    assert scene.sums.read(FEED) != stored
    assert_kept(scene)


def test_a_note_fits_beside_a_checkpoint() -> None:
    """It does with the maximum number of changes and types."""
    types = {f"t{number}": (0,) * 64 for number in range(limits.SUM_TYPES_MAX)}
    changes = {("t7", bucket): 2**64 - 1 for bucket in range(limits.SUM_CHANGES_MAX)}
    assert len(note_of(Sums(1, types), changes)) <= limits.NOTE_BYTES_MAX


def test_types_beyond_the_limit_are_summed_together(scene: Scene) -> None:
    """Nothing is known of one of them; all together are."""
    for number in range(limits.SUM_TYPES_MAX + 3):
        scene.post(op("a", type=f"t{number}"), op("b", type=f"t{number}"))
    scene.project()
    sums = kept(scene)
    assert sums is not None
    assert len(sums.types) == limits.SUM_TYPES_MAX + 1 and OTHERS in sums.types
    assert sums.of("t0") == folded(scene)["t0"]
    assert sums.of(f"t{limits.SUM_TYPES_MAX}") == [None] * limits.BUCKETS
    assert sums.totals == total(folded(scene))


def test_types_are_spelled_as_they_are(scene: Scene) -> None:
    """Their keys escape two letters."""
    scene.post(op("a", type="a/b%"))
    scene.project()
    sums = kept(scene)
    assert sums is not None and any(sums.of("a/b%"))


def test_a_state_without_sums_is_counted(scene: Scene) -> None:
    """A state of an older release is counted, however large it is; the feed continues in the
    meantime."""
    scene.post(*[op(f"x{number}") for number in range(900)])
    scene.post(*[op(f"x{number}", "delete") for number in range(0, 900, 3)])
    scene.project()
    forget(scene)
    assert kept(scene) is None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SUM_COUNT_ROWS", 10)
        patch.setattr(limits, "READ_PAGES_BYTES_MAX", 1_000)
        scene.post(op("x1"), op("x3"), op("new", type="user"))
        scene.project()
    assert_kept(scene)


def forget(scene: Scene) -> None:
    """Make the state look as if no sums were kept up to the checkpoint."""
    lease = scene.followers.take(FEED, STATE, owner="nobody", now_ms=scene.now_ms)
    scene.followers.release(replace(lease, note=b""), force=True)


def test_what_a_run_that_died_wrote_is_counted_again(scene: Scene) -> None:
    """It is unknown what its rows replaced, so their buckets are read, and no others."""
    scene.post(op("a"), op("b"))
    scene.project()
    page = scene.post(op("a"))
    scene.state.write(FEED, project([page], tombstone_ms=TOMBSTONE_MS))

    read: list[int] = []

    class RecordingState(MemoryState):
        def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
            read.append(bucket)
            return scene.state.read(feed, bucket, after)

    scene.projector = replace(scene.projector, sums=SumKeeper(scene.sums, RecordingState()))
    scene.project()
    assert set(read) == {bucket_of("video/a")}
    assert_kept(scene)


@pytest.mark.parametrize("then", [(), ("a",)], ids=["gone", "back"])
def test_what_a_run_that_died_deleted_long_ago_is_counted_again(
    scene: Scene, then: tuple[str, ...]
) -> None:
    """Its tombstone has expired: a missing row does not show that there was none."""
    scene.post(op("a"), op("b"))
    scene.project()
    page = scene.post(op("a", "delete"))
    scene.state.write(FEED, project([page], tombstone_ms=TOMBSTONE_MS))
    for name in then:
        scene.post(op(name))
    scene.now_ms += TOMBSTONE_MS + limits.RETENTION_MS_MIN
    scene.state.expire(scene.now_ms)
    scene.project()
    assert_kept(scene)


def test_who_stores_sums_that_others_replaced_stops(scene: Scene) -> None:
    """A holder that was suspended stops: the sums of the other one are kept, and its run starts
    again."""
    scene.post(op("a"))
    scene.project()
    stored = scene.sums.read(FEED)
    assert stored is not None
    lease = scene.followers.take(FEED, STATE, owner="frozen", now_ms=scene.now_ms)
    scene.projector.begin(lease)
    scene.projector.prepare(FEED, lease.checkpoint)
    page = scene.post(op("b", type="user"))
    scene.sums.write(FEED, replace(stored, version=stored.version + 1))

    with pytest.raises(Unavailable, match="another process"):
        scene.projector.handle(FEED, [page])
    scene.followers.release(lease, force=True)
    scene.project()
    scene.post(op("c"))
    scene.project()
    assert_kept(scene)


def test_what_was_noted_is_not_added_to_what_was_stored_since(scene: Scene) -> None:
    """A holder that crashed between the sums and the checkpoint has stored the earlier note with
    them."""
    scene.post(op("a"))
    scene.project()
    scene.post(op("b"))
    scene.project()
    die(scene, "die", [scene.post(op("c", type="user"))])
    assert_right(scene)
    scene.post(op("d"))
    scene.project()
    assert_kept(scene)


def test_sums_that_are_ahead_wait_for_the_checkpoint(scene: Scene) -> None:
    """A smaller batch after a run that crashed handles a part of the pages which that run
    counted."""
    scene.post(op("a"))
    scene.project()
    pages = [scene.post(op("b", type="user")), scene.post(op("c", type="user"))]
    die(scene, "die", pages)
    die(scene, "stored", pages[:1])
    assert_right(scene)
    scene.project()
    assert_kept(scene)


def test_sums_of_another_state_are_not_told(scene: Scene) -> None:
    """If nothing can be counted yet, the stored sums are from an unknown time."""
    keys = (f"x{number}" for number in range(10_000))
    first, second = islice((key for key in keys if bucket_of(f"video/{key}") == 0), 2)
    scene.post(op(first))
    scene.project()
    forget(scene)
    pages = [scene.post(op(second)), scene.post(op(first)), scene.post(op(second))]
    scene.state.write(FEED, project(pages, tombstone_ms=TOMBSTONE_MS))
    die(scene, "stored", pages[:1])
    assert kept(scene) is None
    scene.project()
    assert_kept(scene)


def test_what_nobody_wants_is_not_kept(scene: Scene) -> None:
    """One write marks the sums as unused; then none is made, and nothing is read, until they are
    requested.
    """
    scene.post(op("a"))
    scene.project()
    scene.sums_wanted = False
    scene.project()
    stored = scene.sums.read(FEED)
    assert stored is not None and stored.counts_none
    for number in range(3):
        scene.post(*[op(f"x{number}-{each}") for each in range(100)])
        scene.project()
    assert scene.sums.read(FEED) == stored
    sums = kept(scene)
    assert sums is not None and sums.unknown == ALL

    scene.sums_wanted = True
    scene.project()
    assert_kept(scene)


def test_who_asks_has_them_kept_for_an_hour(scene: Scene) -> None:
    """The first one begins the count, and so does who asks after a long while."""
    demand = SumDemand(scene.clock, scene.waker)
    reader = replace(scene.sum_reader, on_read=demand.note)
    assert not demand.wants(FEED)
    for _ in range(2):
        scene.waker.woken.clear()
        for _ in range(2):
            reader.read(FEED)
        assert demand.wants(FEED) and not demand.wants("other")
        assert scene.waker.woken == [(FEED, STATE)]
        scene.now_ms += limits.SUMS_WANTED_MS
        assert not demand.wants(FEED)


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("post", "post", "delete", "project", "die", "stored", "late", "look", "forget"),
                *("want", "untold"),
            ]
        ),
        st.integers(0, 2),
        st.integers(0, 1),
    ),
    max_size=30,
)


@settings(max_examples=150)
@given(STEPS, st.sampled_from([1, 3, limits.SUM_CHANGES_MAX]))
def test_whatever_happens_the_sums_are_those_of_the_log(steps: list[Step], changes: int) -> None:
    """No sum is ever wrong: with runs that crash at any point, late writes, new processes, and
    whether or not sums are requested.
    """
    scene = Scene()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SUM_CHANGES_MAX", changes)
        for step in steps:
            happen(scene, step)
            assert_right(scene)
        scene.sums_wanted = True
        scene.post(op("end"))
        scene.project()
    assert_kept(scene)


def happen(scene: Scene, step: Step) -> None:
    what, number, kind = step
    if what in ("post", "delete"):
        event = "delete" if what == "delete" else "update"
        scene.post(op(f"x{number}", event, type=("video", "user")[kind]))
    elif what == "project":
        scene.project()
    elif what == "forget":
        forget(scene)
    elif what == "want":
        scene.sums_wanted = bool(kind)
    elif what == "untold":
        project_untold(scene)
    elif pages := lag_of_sums(scene)[: number + 1]:
        die(scene, what, pages, kind)


def project_untold(scene: Scene) -> None:
    """Let the follower run with a store that does not report the overwritten rows."""
    write = scene.state.write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            scene.state, "write", lambda feed, rows: [None] * len(write(feed, rows)), raising=True
        )
        scene.project()


def lag_of_sums(scene: Scene) -> Sequence[Page]:
    checkpoint = scene.followers.checkpoints(FEED).get(STATE, 0)
    return [page for page in scene.log.read(FEED, 0) if page.number > checkpoint]


def die(scene: Scene, what: str, pages: Sequence[Page], kind: int = 0) -> None:
    """Let a holder of the lease run up to some point and crash."""
    rows = project(pages, tombstone_ms=TOMBSTONE_MS)
    if what == "look":
        pages = ()
    if what == "late":  # some of its puts landed, those of others are still under way
        scene.state.write(FEED, rows[kind:])
        return
    keeper = SumKeeper(scene.sums, scene.state, lambda feed: scene.sums_wanted)
    other = replace(scene.projector, sums=keeper)
    lease = scene.followers.take(FEED, STATE, owner="dead", now_ms=scene.now_ms)
    other.begin(lease)
    other.prepare(FEED, lease.checkpoint)
    if pages:
        other.handle(FEED, pages)
    if what == "stored":  # the checkpoint, too
        last = pages[-1].number
        lease = replace(lease, note=other.note(FEED))
        lease = scene.followers.save(lease, last, now_ms=scene.now_ms)
    scene.followers.release(lease, force=True)


def assert_right(scene: Scene) -> None:
    """Assert that the known sums are right for their page."""
    sums = kept(scene)
    if sums is None:
        return
    pages = [page for page in scene.log.read(FEED, 0) if page.number <= sums.page]
    expected = [0] * limits.BUCKETS
    for row in project(pages, tombstone_ms=TOMBSTONE_MS):
        if not row.deleted:
            added = expected[row.bucket] + digest(row.key, row.page, row.slot)
            expected[row.bucket] = added % MODULO
    for known, right in zip(sums.totals, expected, strict=True):
        assert known in (None, right)
