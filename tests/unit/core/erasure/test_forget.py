"""Objects that were deleted long ago are erased (P22.8), once, and no others."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from tests.unit.core.scene import FEED, Scene, op
from tidings.core.erasure.entries import Entry, parse_entry
from tidings.core.erasure.forget import Forgetter
from tidings.core.model.operations import is_erasure
from tidings.core.model.pages import Page

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
