"""Profiles and other resources: which are valid, how they are saved, and what a feed lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import MemoryProfiles
from tests.unit.core.scene import FEED, FEEDS, Scene, unavailable
from tidings.core import limits
from tidings.core.errors import (
    InvalidCursor,
    InvalidOperation,
    InvalidSetting,
    TidingsError,
    TooLarge,
    Unavailable,
)
from tidings.core.model.cursors import PAGE_END, Cursor, Now, Place, Replication, Since
from tidings.core.model.feeds import FixedFeeds
from tidings.core.settings.profiles import (
    OPLOG,
    Losses,
    Profile,
    Recent,
    RecentProfiles,
    check_compat,
    check_object_url,
    endings_of,
    hit,
    is_oplog,
    oplog_status,
    validate,
)
from tidings.core.settings.values import (
    FOR_GOOD,
    FORGOTTEN,
    Admission,
    Ended,
    Resource,
    check_all,
    may_be_forgotten,
    parse,
    with_ending,
)


def test_a_profile_does_not_show_its_hashes() -> None:
    """Otherwise an error could put one into a log line."""
    assert "hash" not in repr(Profile(read_passwords=("hash",), ingest_passwords=("hash",)))


@pytest.mark.parametrize(
    "template",
    ["", "http://api/{{type}}/{{id}}", "https://x:1/{{id}}", "http://api/{id}", "/{{id}}{{id}}"],
)
def test_links_that_are_accepted(template: str) -> None:
    """Addresses of HTTP and paths, without blanks; oplog's templates all are."""
    assert check_object_url(template) == template


@pytest.mark.parametrize(
    ("template", "rule"),
    [
        ("http://api/{{ID}}", "only the placeholders"),
        ("http://api/{{ id }}", "printable ASCII without blanks"),
        ("javascript:alert('{{id}}')", "must begin with http://, https:// or /"),
        ("data:text/html,{{id}}", "must begin with"),
        ("{{type}}/{{id}}", "must begin with"),
        ("http://api/\n", "printable ASCII without blanks"),
        ("http://äpi/", "printable ASCII without blanks"),
        ("x" * (limits.OBJECT_URL_CHARS_MAX + 1), "at most 1024 characters, got 1025"),
    ],
)
def test_links_that_are_refused(template: str, rule: str) -> None:
    """A typing error must not end in every event."""
    with pytest.raises(InvalidSetting, match=rule) as refused:
        check_object_url(template)
    assert refused.value.field == "object_url"


def test_compat_is_empty_or_oplog() -> None:
    """Ours or oplog's."""
    assert (check_compat(""), check_compat("oplog")) == ("", "oplog")
    with pytest.raises(InvalidSetting, match="must be empty or oplog"):
        check_compat("Oplog")


@pytest.mark.parametrize(
    "wrong",
    [
        Profile(object_url="a b"),
        Profile(compat="x"),
        Profile(read_passwords=("a", "b", "c")),
        Profile(ingest_passwords=("a", "b", "c")),
    ],
)
def test_a_profile_is_checked_field_by_field(wrong: Profile) -> None:
    """Mistakes are found before the profile is saved."""
    assert validate(Profile(read_passwords=("a", "b"), ingest_passwords=("c",)))
    with pytest.raises(InvalidSetting):
        validate(wrong)


def test_a_change_is_seen_when_the_profile_is_too_old(scene: Scene) -> None:
    """A busy process therefore reads the profile once in five seconds, and no later."""
    recent = RecentProfiles(scene.profiles, scene.clock)
    assert recent.profile("main") == Profile()
    scene.profiles.save("main", Profile(leave=True))
    scene.now_ms += limits.PROFILE_AGE_MS - 1
    assert recent.profile("main") == Profile()
    scene.now_ms += 1
    assert recent.profile("main") == Profile(leave=True, version=1)


def test_a_clock_set_back_keeps_nothing_alive(scene: Scene) -> None:
    """A removed password would otherwise count until the clock has caught up."""
    recent = RecentProfiles(scene.profiles, scene.clock)
    recent.profile("main")
    scene.profiles.save("main", Profile(leave=True))
    scene.now_ms -= 60_000
    assert recent.profile("main").leave


def test_feeds_are_remembered_each_for_itself(scene: Scene) -> None:
    """One feed's profile is never another's."""
    recent = RecentProfiles(scene.profiles, scene.clock)
    scene.profiles.save("b", Profile(leave=True))
    assert (recent.profile("a").leave, recent.profile("b").leave) == (False, True)


def test_who_saves_sees_it_at_once(scene: Scene) -> None:
    """A save that starts from an old version is refused all the same."""
    recent = RecentProfiles(scene.profiles, scene.clock)
    old = recent.profile("main")
    assert recent.save("main", replace(old, compat="oplog"))
    assert recent.profile("main").compat == "oplog"
    assert not recent.save("main", old)


def test_a_value_is_read_again_once_it_is_too_old() -> None:
    """This includes a clock that was set back."""
    now, stored = [100], [1]
    recent: Recent[str, int] = Recent(lambda _: stored[0], lambda: 10, lambda: now[0])
    assert recent.get("a") == 1
    stored[0] = 2
    now[0] = 109
    assert recent.get("a") == 1
    now[0] = 110
    assert recent.get("a") == 2
    stored[0] = 3
    now[0] = 50
    assert recent.get("a") == 3


def test_a_read_that_began_before_a_change_is_not_remembered() -> None:
    """It may have returned the value from before, which would count for seconds more."""
    stored = [1]

    def read(_: str) -> int:
        value = stored[0]
        if value == 1:  # another thread changes it while this one reads
            stored[0] = 2
            recent.forget("a")
        return value

    recent: Recent[str, int] = Recent(read, lambda: 10, lambda: 0)
    assert [recent.get("a"), recent.get("a")] == [1, 2]


LOST = ((5, 8), (20, 29))


@pytest.mark.parametrize(
    ("cursor", "lost"),
    [
        (Place(4, PAGE_END, 1), False),
        (Place(5, 0, 1), True),
        (Place(8, PAGE_END, 1), True),
        (Place(9, PAGE_END, 1), False),
        (Place(25, 3, 1), True),
        (Place(30, 0, 1), False),
        (Replication(0, 4, 3, tombstones=False), True),
        (Replication(7, 9, 3, tombstones=True), True),
        (Replication(0, 30, 3, tombstones=False), False),
        (Replication(0, 4, limits.BUCKETS, tombstones=False), False),
        (Replication(0, 22, limits.BUCKETS, tombstones=False), True),
        (Now(), False),
        (Since(1), False),
    ],
)
def test_who_heard_of_what_was_lost(cursor: Cursor, lost: bool) -> None:
    """A place on a lost page, or a copy that began before the last of them; not the new log."""
    assert hit(cursor, LOST) is lost


def test_they_are_those_of_the_feed() -> None:
    """The profile has the lost ranges; a feed without one lost nothing."""
    profiles = MemoryProfiles()
    losses = Losses(profiles)
    assert not losses("main", Place(5, 0, 1))
    profiles.save("main", replace(Profile(), lost=LOST))
    assert losses("main", Place(5, 0, 1))
    assert not losses("other", Place(5, 0, 1))


def test_a_feed_answers_as_its_owner_has_set() -> None:
    """Feeds answer in Tidings's way by default; unknown feeds do too."""
    profiles = MemoryProfiles()
    feeds = FixedFeeds(FEEDS)
    profiles.save("nowhere", Profile(compat=OPLOG))
    assert not is_oplog(profiles, feeds, FEED)

    profiles.save(FEED, Profile(compat=OPLOG))
    assert is_oplog(profiles, feeds, FEED)
    assert not is_oplog(profiles, feeds, "other")
    assert not is_oplog(profiles, feeds, "nowhere")


def test_a_store_that_does_not_answer_is_no_second_error() -> None:
    """The request has failed already; it is answered in our way."""
    away = MemoryProfiles()
    away.profile = unavailable  # type: ignore[method-assign]
    assert not is_oplog(away, FixedFeeds(FEEDS), FEED)


@pytest.mark.parametrize(
    ("error", "status", "oplogs"),
    [
        (InvalidOperation("no"), 400, 503),
        (InvalidCursor("no"), 400, 400),
        (TooLarge("no"), 413, 413),
        (Unavailable("no"), 503, 503),
    ],
)
def test_O13_what_oplog_said(error: TidingsError, status: int, oplogs: int) -> None:
    """It said 503 for an invalid operation; errors that it did not have keep our status."""
    assert oplog_status(error, status) == oplogs


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("vm:nic,alias=/vms", Resource("vm", ("nic", "alias"), "/vms")),
        ("vm:nic=/vms?a=b", Resource("vm", ("nic",), "/vms?a=b")),
        ("vm:nic", Resource("vm", ("nic",), "/feeds/main/objects?type=vm")),
        ("a b:", Resource("a b", (), "/feeds/main/objects?type=a%20b")),
    ],
)
def test_a_resource_is_read(text: str, resource: Resource) -> None:
    """Without a route it is our own."""
    assert parse(text, "main") == resource


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("vm", "must be NAME:SUB"),
        (":nic", "must not be empty"),
        ("VM:nic", "lower case"),
        ("change:nic", "without an object"),
        ("vm:nic=vms", "must be a path"),
        ("vm:nic=/v ms", "must be a path"),
        ("vm:" + ",".join(f"s{number}" for number in range(33)), "at most 32"),
        (f"vm:{'x' * 641}", "at most 640 bytes"),
    ],
)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    """Nothing is saved before that."""
    with pytest.raises(InvalidSetting, match=sentence):
        parse(text, "main")


def test_a_feed_declares_so_many() -> None:
    """Each is sent with every list of them."""
    many = [Resource(f"r{number}", (), "/") for number in range(33)]
    with pytest.raises(InvalidSetting, match="at most 32"):
        check_all(many, 3600)


NOW = 1_763_000_000_000


@pytest.mark.parametrize(
    ("admission", "endings", "ended"),
    [
        (FOR_GOOD, {"a": 0}, False),
        (Admission("a"), {}, False),
        (Admission("a"), {"b": 0}, False),
        (Admission("a"), {"a": 0}, True),
        (Admission("a"), {"a": NOW}, True),
        (Admission("a"), {"a": NOW + 1}, False),
        (Admission("a", NOW), {}, True),
        (Admission("", NOW), {}, True),
        (Admission("a", NOW + 1), {}, False),
    ],
)
def test_what_ends_an_admission(admission: Admission, endings: dict[str, int], ended: bool) -> None:
    """Its expiry ends it, or the end of its key; a password never does."""
    assert admission.has_ended(endings, NOW) is ended


def test_a_profile_knows_the_endings() -> None:
    """The endings are found by key."""
    profile = Profile(ended=(Ended("a", 1), Ended("b", 1, 2)))
    assert endings_of(profile) == {"a": 0, "b": 2}


def test_an_ending_is_noted_once() -> None:
    """The later ending of a key counts: a rotated key may be revoked before it expires."""
    standing = with_ending((Ended("b", NOW),), Ended("a", NOW, NOW + 9))
    assert with_ending(standing, Ended("a", NOW + 1)) == (Ended("b", NOW), Ended("a", NOW + 1))


def test_an_ending_is_forgotten_when_nobody_can_be_connected() -> None:
    """Counted from when it counts, so that one of tomorrow is there tomorrow."""
    later = NOW + limits.CONNECTION_MS_MAX
    standing = (Ended("a", NOW), Ended("b", NOW, NOW + 1), Ended("c", NOW + 1))
    assert with_ending(standing, Ended("d", later)) == (*standing[1:], Ended("d", later))


def test_of_very_many_the_oldest_are_forgotten() -> None:
    """A profile must fit an item and is read often, so it forgets the oldest. Until then the sweep
    has closed the WebSockets of such keys; all streams that were admitted before then end.
    """
    standing = tuple(Ended(f"k{n}", NOW + n) for n in range(limits.ENDED_MAX))
    for n in (limits.ENDED_MAX, limits.ENDED_MAX + 1):
        standing = with_ending(standing, Ended(f"k{n}", NOW + n))
    forgotten, *kept = standing
    assert len(standing) == limits.ENDED_MAX
    assert [each.key for each in kept] == [f"k{n}" for n in range(3, 1002)]
    last_forgotten = NOW + 2
    assert (forgotten.key, forgotten.noted_ms) == (FORGOTTEN, NOW + 1001)
    endings = endings_of(Profile(ended=standing))
    later = last_forgotten + 10 * limits.CLOCK_SKEW_MS_MAX
    assert may_be_forgotten(endings, last_forgotten + limits.KEY_AGE_MS, later)
    assert not may_be_forgotten(endings, last_forgotten + 2 * limits.CLOCK_SKEW_MS_MAX, later)
    assert not may_be_forgotten(endings_of(Profile(ended=standing[1:])), 0, later)


def test_a_key_that_holds_a_while_is_forgotten_from_then_on() -> None:
    """A stream that was admitted with the key ends once the key has, and not repeatedly before."""
    soon = NOW + 600_000
    standing = tuple(Ended(f"k{n}", NOW, soon if n == 0 else 0) for n in range(limits.ENDED_MAX))
    endings = endings_of(Profile(ended=with_ending(standing, Ended("new", NOW))))
    assert not may_be_forgotten(endings, NOW, soon - 1)
    assert may_be_forgotten(endings, soon - 1, soon + 2 * limits.CLOCK_SKEW_MS_MAX)
