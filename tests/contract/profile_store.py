"""What every store of profiles keeps to: `ProfileStore`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.contract.stores import Stores, unset
from tidings.core.settings.documents import SETTINGS, Setting
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import Ended, Resource

RESOURCES = (Resource("vm", ("nic", "ä"), "/vms"), Resource("network", (), "/networks?a=b"))
SAMPLES = {"string": "http://api/ä", "integer": 28_800, "array": RESOURCES}


def sample(setting: Setting) -> Any:
    kind = setting.schema["type"]
    return not getattr(Profile(), setting.field) if kind == "boolean" else SAMPLES[kind]


PROFILE = Profile(
    read_passwords=("new", "old"),
    ingest_passwords=("other",),
    ended=(Ended("3k2m9c0q8xw1", 1), Ended("abcabcabcabc", 2, 3)),
    lost=((3, 9), (12, 1_000_000_000_000)),
    closed=True,
    **{each.field: sample(each) for each in SETTINGS.values()},
)


class TestProfiles:
    def test_a_new_feed_has_the_defaults(self, stores: Stores, feed: str) -> None:
        """Nothing has to be written before a feed is used."""
        assert stores.profiles.profile(feed) == Profile()

    def test_a_profile_is_kept_whole(self, stores: Stores, feed: str) -> None:
        """Every field, under its feed alone, as the next version."""
        assert unset(PROFILE) == ["version"]
        assert stores.profiles.save(feed, PROFILE)
        assert stores.profiles.profile(feed) == replace(PROFILE, version=1)
        assert stores.profiles.profile(f"{feed}-other") == Profile()

    def test_what_is_not_set_again_is_gone(self, stores: Stores, feed: str) -> None:
        """A save replaces, it does not merge: a removed password is removed."""
        stores.profiles.save(feed, PROFILE)
        assert stores.profiles.save(feed, Profile(version=1))
        assert stores.profiles.profile(feed) == Profile(version=2)
