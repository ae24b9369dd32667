"""Issuing: keys are made, replaced and revoked, and who is connected is written down."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.key_admin import Issuer
from tidings.core.auth.keys import Given, Key
from tidings.core.errors import InvalidSetting, Unavailable, UnknownKey
from tidings.core.model.filters import Filter
from tidings.core.settings.feed import Profile
from tidings.core.settings.revocations import Ended

from tests.core.scene import FEED, NOW, Scene
from tests.fakes import MemoryKeys, MemoryProfiles

NEW = Given("abcabcabcabc", "t" * 32)
HOUR_MS = 3600 * 1000


def test_a_key_is_stored_without_its_secret(scene: Scene) -> None:
    """With who made it, and when."""
    given = scene.key(Role.INGEST, rate=3, made_by="ann")
    key = scene.issuer.find(FEED, given.id)
    assert (key.made_ms, key.made_by, key.rate, key.version) == (NOW, "ann", 3, 1)
    assert key.matches(given.secret)
    assert given.secret not in str([getattr(key, name) for name in key.__slots__])


def test_what_breaks_a_rule_is_not_stored(scene: Scene) -> None:
    """Nor one that has run out before it is made."""
    with pytest.raises(InvalidSetting):
        scene.key(rate=-1)
    with pytest.raises(InvalidSetting):
        scene.key(expires_ms=NOW)
    assert list(scene.keys.keys(FEED)) == []


def test_an_id_is_given_once(scene: Scene) -> None:
    """Who draws it again is told."""
    scene.issuer.create(FEED, NEW, Key("", "", frozenset({Role.READ})))
    with pytest.raises(InvalidSetting, match="is taken"):
        scene.issuer.create(FEED, NEW, Key("", "", frozenset({Role.READ})))


def test_a_revocation_is_written_down_twice(scene: Scene) -> None:
    """In the key, and for who is connected with it; a second one changes nothing in the key."""
    given = scene.key()
    scene.now_ms += 5
    assert scene.issuer.revoke(FEED, given.id).revoked_ms == NOW + 5
    assert scene.profiles.profile(FEED).ended == (Ended(given.id, NOW + 5),)
    scene.now_ms += 5
    assert scene.issuer.revoke(FEED, given.id).revoked_ms == NOW + 5


def test_nobody_can_end_what_is_not_there(scene: Scene) -> None:
    """The feed's other keys and its profile stay as they are."""
    for act in (scene.issuer.find, scene.issuer.revoke):
        with pytest.raises(UnknownKey, match="is the id of no key"):
            act(FEED, NEW.id)
    assert scene.profiles.profile(FEED) == Profile()


@pytest.mark.parametrize(
    ("overlap_ms", "expires_ms", "revoked_ms", "ended"),
    [
        (24 * HOUR_MS, NOW + 24 * HOUR_MS, 0, None),
        (HOUR_MS, NOW + HOUR_MS, 0, (NOW, NOW + HOUR_MS)),
        (0, 0, NOW, (NOW,)),
    ],
    ids=["when nobody is connected any more", "earlier: they are told", "at once: it is revoked"],
)
def test_rotating_ends_the_old_one(
    scene: Scene, overlap_ms: int, expires_ms: int, revoked_ms: int, ended: tuple[int, ...] | None
) -> None:
    """It names its successor, which has its rights."""
    given = scene.key(bound=Filter(frozenset({"video"})), label="shop")
    made = scene.issuer.rotate(FEED, given.id, NEW, overlap_ms, "bob")
    old = scene.issuer.find(FEED, given.id)
    assert (old.expires_ms, old.successor, old.revoked_ms) == (expires_ms, NEW.id, revoked_ms)
    assert (made.bound, made.label) == (old.bound, "shop")
    assert (made.made_by, made.expires_ms) == ("bob", 0)
    expected = () if ended is None else (Ended(given.id, *ended),)
    assert scene.profiles.profile(FEED).ended == expected


def test_an_overlap_makes_no_key_live_longer(scene: Scene) -> None:
    """One that runs out earlier does so; one that has ended has no successor."""
    given = scene.key(expires_ms=NOW + HOUR_MS)
    made = scene.issuer.rotate(FEED, given.id, NEW, 24 * HOUR_MS, "bob")
    assert scene.issuer.find(FEED, given.id).expires_ms == made.expires_ms == NOW + HOUR_MS
    scene.now_ms += HOUR_MS
    with pytest.raises(InvalidSetting, match="has ended"):
        scene.issuer.rotate(FEED, given.id, Given("d" * 12, "u" * 32), 1, "bob")


def test_what_others_change_meanwhile_is_kept() -> None:
    """In the key and in the profile."""

    class Busy(MemoryProfiles):
        busy = 1

        def save(self, feed: str, profile: Profile) -> bool:
            if self.busy:
                self.busy -= 1
                super().save(feed, replace(self.profile(feed), compat="oplog"))
            return super().save(feed, profile)

    scene = Scene(profiles=Busy())
    given = scene.key()
    scene.issuer.revoke(FEED, given.id)
    profile = scene.profiles.profile(FEED)
    assert (profile.compat, [each.key for each in profile.ended]) == ("oplog", [given.id])


def test_what_keeps_changing_is_given_up() -> None:
    """Nothing is said to be done that is not."""

    class Changing(MemoryKeys):
        def save(self, feed: str, key: Key) -> bool:
            return key.version == 0 and super().save(feed, key)

    issuer = Issuer(Changing(), MemoryProfiles(), lambda: NOW)
    issuer.create(FEED, NEW, Key("", "", frozenset({Role.READ})))
    with pytest.raises(Unavailable):
        issuer.revoke(FEED, NEW.id)
    assert limits.ENDED_MAX > 0 and issuer.profiles.profile(FEED).ended == ()
