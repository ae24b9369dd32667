"""Profiles: which are accepted, and how long one is remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.core import limits
from tidings.core.errors import InvalidSetting
from tidings.core.settings.feed import Profile, check_compat, check_object_url, checked
from tidings.core.settings.lookups import RecentProfiles

from tests.core.scene import Scene


def test_a_profile_does_not_show_its_hashes() -> None:
    """So that none ends in a log line by way of an error."""
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
        ("http://api/{{ID}}", "no other placeholder"),
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


def test_manners() -> None:
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
    """Whatever is wrong is found before it is saved."""
    assert checked(Profile(read_passwords=("a", "b"), ingest_passwords=("c",)))
    with pytest.raises(InvalidSetting):
        checked(wrong)


def test_a_change_is_seen_when_the_profile_is_too_old(scene: Scene) -> None:
    """Not before, so that a busy process reads it once in five seconds; not later either."""
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
    """And a save from an old version is refused all the same."""
    recent = RecentProfiles(scene.profiles, scene.clock)
    old = recent.profile("main")
    assert recent.save("main", replace(old, compat="oplog"))
    assert recent.profile("main").compat == "oplog"
    assert not recent.save("main", old)
