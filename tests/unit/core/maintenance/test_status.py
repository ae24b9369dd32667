"""Reporting: oplog's ten fields, and further ones for operators."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.unit.core.scene import FEED, NOW, Scene, op
from tidings.core import limits
from tidings.core.errors import FeedDeleted
from tidings.core.followers.follower import FOLLOWERS, BuiltInFollowers
from tidings.core.maintenance.history import Figures, History
from tidings.core.maintenance.status import COUNTERS, LAGGING, OK, STALLED, Reporter
from tidings.core.model.cursors import parse
from tidings.core.model.pages import Page


def reporter(scene: Scene) -> Reporter:
    """Return a reporter that has reported nothing yet."""
    return Reporter(
        store=scene.followers,
        counters=scene.counters,
        reader=scene.reader,
        feed_names=scene.host.directory,
        followers=BuiltInFollowers(),
        losses=scene.host.losses,
    )


def look(scene: Scene) -> Any:
    """Return the report as its readers get it."""
    return json.loads(json.dumps(reporter(scene).report(FEED)))


def followers(scene: Scene) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in look(scene)["followers"]}


def test_what_never_got_a_page_was_received_only(scene: Scene) -> None:
    """Its writer crashed after it took the number; a follower closed the hole."""
    scene.log.take(FEED, 10)
    scene.post(op("a"))
    scene.now_ms += limits.HOLE_GRACE_MS
    scene.project()

    report = look(scene)
    assert (report["events_received"], report["events_ingested"]) == (11, 1)
    assert (report["head"], report["frontier"]["page"]) == (2, 2)


def test_counters_are_shown(scene: Scene) -> None:
    """The report has refused requests, sent events and connected clients."""
    scene.counters.refuse(FEED)
    scene.counters.serve(FEED, connections=4, sent=70)
    scene.counters.attend(FEED, "here", 3, until_ms=NOW + 1)

    report = look(scene)
    assert report["events_error"] == 1
    assert (report["connections"], report["events_sent"], report["clients"]) == (4, 70, 3)
    scene.now_ms += 1
    assert look(scene)["clients"] == 0


def test_a_follower_that_is_behind_says_how_far(scene: Scene) -> None:
    """In pages to the head, and by the age of the oldest page it has not handled."""
    scene.projected(op("a"))
    scene.now_ms += 500
    scene.post(op("b"))
    scene.now_ms += 3_000
    scene.post(op("c"))

    lags = followers(scene)
    assert (lags["state"]["checkpoint"], lags["push"]["checkpoint"]) == (1, 0)
    assert (lags["state"]["lag_pages"], lags["push"]["lag_pages"]) == (2, 3)
    assert (lags["state"]["lag_ms"], lags["push"]["lag_ms"]) == (3_000, 3_500)


def test_W25_a_follower_that_stands_still_is_told(scene: Scene) -> None:
    """oplog always said OK. A lag of a minute is not reported yet; one of more than two sweeps
    is."""
    scene.post(op("a"))
    scene.now_ms += limits.LAG_MS_MAX
    assert look(scene)["status"] == OK
    scene.now_ms += 1
    assert look(scene)["status"] == LAGGING
    scene.project()
    assert look(scene)["status"] == LAGGING
    scene.push()
    assert look(scene)["status"] == OK


def lose(scene: Scene, number: int) -> None:
    scene.log._feeds[FEED].pages.pop(number)
    scene.log._feeds[FEED].numbers.remove(number)


def test_9_3_a_follower_before_a_lost_page_is_reported_at_once(scene: Scene) -> None:
    """P9.3: the report has the page, once for both followers; a pending write is not reported."""
    scene.projected(op("a"))
    for name in "bcd":
        scene.post(op(name))
    scene.push()
    lose(scene, 2)
    report = look(scene)
    assert report["status"] == STALLED
    assert report["problems"] == ["main: page 2 is missing (head 4); run `tidings verify`"]

    lose(scene, 4)
    scene.log.take(FEED)
    scene.post(op("e"))
    assert "page 5" not in str(look(scene))


def test_9_3_a_follower_whose_pages_were_given_up_is_reported(scene: Scene) -> None:
    """The state never passes them; a copied state does, once its copy is whole."""
    scene.projected(op("a"))
    scene.post(op("b"))
    scene.post(op("c"))
    scene.log.raise_floor(FEED, 3)
    lose(scene, 2)
    assert look(scene)["status"] == STALLED
    copied = replace(reporter(scene), losses=scene.chained())
    assert copied.report(FEED)["status"] == OK


def test_9_3_a_late_follower_is_named(scene: Scene) -> None:
    """P9.3: with its checkpoint, the head and the seconds."""
    scene.post(op("a"))
    assert "problems" not in look(scene)
    scene.push()
    scene.now_ms += limits.LAG_MS_MAX + 1
    late = "main: the follower state is at page 0 (head 1), 120 s late; see its error log"
    assert look(scene)["problems"] == [late]


def test_W25_the_archive_waits_for_pages_and_is_late_where_its_alarm_says(scene: Scene) -> None:
    """ADR 51: it runs each quarter of an hour where little is posted."""
    with_archive = replace(reporter(scene), followers=BuiltInFollowers(archives=True))
    scene.post(op("a"))
    scene.project()
    scene.push()
    scene.now_ms += 1000 * limits.ARCHIVE_LAG_S_MAX
    assert with_archive.report(FEED)["status"] == OK
    scene.now_ms += limits.STATUS_AGE_MS
    assert with_archive.report(FEED)["status"] == LAGGING


def test_a_number_without_a_page_is_no_trouble(scene: Scene) -> None:
    """Its writer may have crashed, and there was no post since: there is nothing to handle."""
    scene.log.take(FEED)
    scene.now_ms += 10 * limits.LAG_MS_MAX

    report = look(scene)
    assert (report["status"], report["head"], report["frontier"]["page"]) == (OK, 1, 0)
    assert followers(scene)["state"]["lag_ms"] == 0


def test_a_follower_at_work_holds_a_lease(scene: Scene) -> None:
    """It is leased until it releases the lease, or the lease expires."""
    scene.followers.take(FEED, "state", owner="me", now_ms=scene.now_ms)

    assert followers(scene)["state"]["leased"] is True
    assert followers(scene)["push"]["leased"] is False
    scene.now_ms += limits.LEASE_MS
    assert followers(scene)["state"]["leased"] is False


def test_a_follower_of_any_name_is_told(scene: Scene) -> None:
    """Every follower with a checkpoint is listed."""
    scene.followers.take(FEED, "relay", owner="me", now_ms=scene.now_ms)

    assert list(followers(scene)) == sorted([*FOLLOWERS, "relay"])


def test_the_archive_is_told_while_there_is_one(scene: Scene) -> None:
    """It is listed before its first run too; the checkpoint of one that was turned off is
    ignored."""
    with_archive = replace(reporter(scene), followers=BuiltInFollowers(archives=True))

    assert list(followers(scene)) == sorted(FOLLOWERS)
    listed = with_archive.report(FEED)["followers"]
    assert [each["name"] for each in listed] == sorted([*FOLLOWERS, "archive"])  # type: ignore[attr-defined]
    scene.post(op())
    scene.archived()
    assert list(followers(scene)) == sorted(FOLLOWERS)


def test_the_frontier_is_a_cursor(scene: Scene) -> None:
    """It is the cursor from which a consumer that has everything resumes; it stays before a
    hole."""
    scene.post(op("a"))
    scene.post(op("b"))
    scene.log.take(FEED)
    last = scene.post(op("d"))

    frontier = look(scene)["frontier"]
    assert frontier["page"] == 2 and frontier["exact"] is True
    assert parse(frontier["cursor"]) == scene.reader.frontier(FEED, 0)
    assert last.number == 4


def test_a_far_frontier_is_not_searched_for(scene: Scene) -> None:
    """If followers are stuck, a report costs a few reads, and says that there are more pages."""
    for _ in range(3 * limits.STATUS_READS_MAX + 3):
        number = scene.log.take(FEED)
        scene.log.put(FEED, Page(number, b"x" * limits.PAGE_BYTES_MAX, "id", NOW))

    frontier = look(scene)["frontier"]
    assert frontier["exact"] is False
    assert 0 < frontier["page"] < number


def test_a_crowd_shares_a_report(scene: Scene) -> None:
    """For a second, each feed its own."""
    shared = reporter(scene)
    first = shared.report(FEED)
    scene.post(op("a"))

    assert shared.report(FEED) is first
    assert shared.report("other")["feed"] == "other"
    scene.now_ms += limits.STATUS_AGE_MS
    assert shared.report(FEED)["events_received"] == 1


def test_without_a_store_the_shape_stays(scene: Scene) -> None:
    """Unknown numbers are null."""
    report = reporter(scene).unavailable(FEED)

    assert list(report) == ["status", *COUNTERS, "feed", "time"]
    assert report["status"] == "UNAVAILABLE"
    assert [report[name] for name in COUNTERS] == [None] * 9


MINUTE = limits.SWEEP_EVERY_MS


@dataclass
class Feeds:
    """Feeds with figures that a test changes; *looked* has each read."""

    figures: dict[str, Figures] = field(default_factory=dict)
    looked: list[str] = field(default_factory=list)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.history = History(self.look)

    def look(self, feed: str) -> Figures:
        self.looked.append(feed)
        if feed not in self.figures:
            raise FeedDeleted(feed)
        return self.figures[feed]

    def change(self, feed: str, *, operations: int = 0, sent: int = 0, **lags: int) -> None:
        old = self.figures.get(feed, Figures(0, {}))
        self.figures[feed] = Figures(old.head + 1, {"state": 0, **lags})
        self.history.count(feed, operations=operations, events=sent)

    def pass_minutes(self, count: int = 1) -> None:
        for _ in range(count):
            self.now_ms += MINUTE
            self.looked.clear()
            self.history.sample(self.now_ms)

    def column(self, feed: str, name: str) -> list[Any]:
        return [getattr(each, name) for each in self.history.samples(feed)]


@pytest.fixture
def feeds() -> Feeds:
    return Feeds()


def test_9_10_a_sample_counts_since_the_one_before_it(feeds: Feeds) -> None:
    """Operations that are counted while no sample is taken are in the next one."""
    for sent in (4, 0, 6):
        feeds.change("main", operations=7, sent=sent)
        feeds.history.count("main", operations=3)
        feeds.pass_minutes()
    assert feeds.column("main", "operations") == [10, 10, 10]
    assert feeds.column("main", "events") == [4, 0, 6]
    assert feeds.column("main", "ms") == [MINUTE, 2 * MINUTE, 3 * MINUTE]
    assert feeds.column("main", "head") == [1, 2, 3]


def test_9_10_an_idle_feed_is_not_read(feeds: Feeds) -> None:
    """Its samples are those of its last change, without operations; a lag is read until it ends."""
    feeds.change("main", operations=5, state=2)
    feeds.pass_minutes(2)
    assert feeds.looked == ["main"]
    feeds.figures["main"] = replace(feeds.figures["main"], lags={"state": 0})
    feeds.pass_minutes()
    assert feeds.looked == ["main"]
    feeds.pass_minutes(3)
    assert feeds.looked == []
    assert feeds.column("main", "operations") == [5, 0, 0, 0, 0, 0]
    assert feeds.column("main", "lags") == [{"state": lag} for lag in (2, 2, 0, 0, 0, 0)]
    assert feeds.history.samples("other") == []


def test_9_10_only_an_hour_is_kept(feeds: Feeds) -> None:
    """A busy feed and an idle one have 60 samples each."""
    feeds.change("idle", operations=1)
    for _ in range(70):
        feeds.change("main", operations=1)
        feeds.pass_minutes()
    for feed in ("main", "idle"):
        times = feeds.column(feed, "ms")
        assert times == [at * MINUTE for at in range(11, 71)]
    assert set(feeds.column("idle", "operations")) == {0}


def test_9_10_the_feeds_that_changed_last_are_kept(
    feeds: Feeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if more of them change in one minute; a deleted feed is forgotten, with its counts."""
    monkeypatch.setattr(limits, "FEEDS_NAMED", 3)
    for name in "abcd":
        feeds.change(name)
    feeds.pass_minutes()
    assert feeds.looked == ["b", "c", "d"]
    feeds.change("e")
    feeds.change("c")
    feeds.pass_minutes()
    kept = [name for name in "abcde" if feeds.history.samples(name)]
    assert kept == ["c", "d", "e"]
    feeds.history.count("c", operations=1)
    del feeds.figures["c"]
    feeds.pass_minutes()
    assert feeds.history.samples("c") == [] and set(feeds.history._counts) == {"d", "e"}


def test_9_10_a_sample_has_the_largest_lags(feeds: Feeds, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a name that lags in one sample is in all of them."""
    monkeypatch.setattr(limits, "HISTORY_LAGS", 2)
    feeds.change("main", a=1, b=3, c=2)
    feeds.pass_minutes()
    feeds.change("main", a=1)
    feeds.pass_minutes()
    first, second = feeds.column("main", "lags")
    assert first == {"state": 0, "a": 0, "b": 3, "c": 2}
    assert second == {"state": 0, "a": 1, "b": 0, "c": 0}
