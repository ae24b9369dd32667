"""The contract of stores of keys and of their usage: `KeyStore` and `KeyUsage`."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.stores import Stores, unset
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key, digest_of
from tidings.core.model.filters import Filter

AT_MS = 4_102_444_750_000  # in 2100: a key that ended long ago is not kept
KEY = Key(
    "3k2m9c0q8xw1",
    digest_of("s" * 32),
    frozenset({Role.READ, Role.INGEST}),
    Filter(frozenset({"video"}), frozenset({"user/42", "ä"})),
    expires_ms=4_102_444_800_000,
    rate=5,
    streams=7,
    label="the phone of Ann",
    made_ms=4_102_444_700_000,
    made_by="bob",
    revoked_ms=AT_MS,
    successor="abcabcabcabc",
    feeds=("team-a-", "x"),
)
PLAIN = Key("000000000000", digest_of("t" * 32), frozenset({Role.ADMIN}))


class TestKeys:
    def test_there_is_none_at_first(self, stores: Stores, feed: str) -> None:
        """Not for any name."""
        assert stores.keys.key(feed, KEY.id) is None
        assert list(stores.keys.keys(feed)) == []

    def test_a_key_is_kept_whole(self, stores: Stores, feed: str) -> None:
        """Every field, under its feed alone, as the next version."""
        assert unset(KEY) == ["version"]
        for key in (KEY, PLAIN):
            assert stores.keys.save(feed, key)
            assert stores.keys.key(feed, key.id) == replace(key, version=1)
        assert stores.keys.key(f"{feed}-other", KEY.id) is None

    def test_keys_are_listed_by_their_ids(self, stores: Stores, feed: str) -> None:
        """The keys of this feed alone."""
        for key in (KEY, PLAIN):
            assert stores.keys.save(feed, key)
        assert stores.keys.save(f"{feed}-other", KEY)
        assert [key.id for key in stores.keys.keys(feed)] == [PLAIN.id, KEY.id]

    def test_an_id_is_given_once(self, stores: Stores, feed: str) -> None:
        """An attempt to save a second key with the id is refused, and the key stays as it is."""
        assert stores.keys.save(feed, KEY)
        assert not stores.keys.save(feed, replace(PLAIN, id=KEY.id))
        assert stores.keys.key(feed, KEY.id) == replace(KEY, version=1)

    def test_what_was_used_adds_up(self, stores: Stores, feed: str) -> None:
        """For each key and each window."""
        window = 410_244_480
        assert stores.key_usage.add(feed, "a", window, 3) == 3
        assert stores.key_usage.add(feed, "a", window, 4) == 7
        assert stores.key_usage.add(feed, "b", window, 1) == 1
        assert stores.key_usage.add(feed, "a", window + 1, 1) == 1
        assert stores.key_usage.add(f"{feed}-other", "a", window, 1) == 1

    def test_what_is_held_is_counted_until_its_time(self, stores: Stores, feed: str) -> None:
        """For each key; released or expired ones do not count."""
        held, now, later = stores.key_usage, 4_102_444_800_000, 4_102_444_900_000
        assert held.hold(feed, "a", "x", until_ms=now + 5, now_ms=now) == 1
        assert held.hold(feed, "a", "y", until_ms=later, now_ms=now) == 2
        assert held.hold(feed, "b", "z", until_ms=later, now_ms=now) == 1
        assert held.hold(f"{feed}-other", "a", "z", until_ms=later, now_ms=now) == 1
        held.release(feed, "a", "y", later)
        held.release(feed, "a", "none", later)
        assert held.hold(feed, "a", "z", until_ms=later, now_ms=now + 4) == 2
        assert held.hold(feed, "a", "v", until_ms=later, now_ms=now + 5) == 2
