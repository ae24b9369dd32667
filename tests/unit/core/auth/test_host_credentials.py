"""Credentials of the host: they open its feeds, and permit to create and delete feeds."""

from __future__ import annotations

import pytest

from tests.unit.core.auth.test_keys import Counting
from tests.unit.core.scene import FEED, Scene, shown
from tidings.core import limits
from tidings.core.auth.guard import Credential, Role
from tidings.core.auth.keys import Key, KeyRing, PresentedKey, bound_of
from tidings.core.auth.oidc_claims import grant_of
from tidings.core.auth.passwords import hash_password
from tidings.core.errors import (
    InvalidSetting,
    KeyEnded,
    NoPasswordSet,
    OutsideKey,
    WrongKey,
    WrongPassword,
)
from tidings.core.feeds.access import admit
from tidings.core.feeds.directory import Directory
from tidings.core.feeds.records import FeedRecord
from tidings.core.model.feeds import HOST, key_of
from tidings.core.model.filters import EVERYTHING
from tidings.core.settings.profiles import Profile

GIVEN = PresentedKey("hosthosthost", "s" * 32)
SECRET = "correct horse battery"


@pytest.fixture
def scene() -> Scene:
    return Scene(keys=Counting())


def host_key(scene: Scene, *feeds: str, role: Role = Role.ADMIN) -> Credential:
    scene.issuer.create(HOST, GIVEN, Key("", "", frozenset({role}), feeds=feeds))
    return shown(GIVEN)


def test_a_key_of_the_host_opens_every_feed(scene: Scene) -> None:
    """Also a feed that was created after a deletion, whose key is not its name."""
    given = host_key(scene, role=Role.READ)
    for feed in (FEED, key_of("orders", 2), HOST):
        assert scene.guard.check(feed, Role.READ, given).principal == GIVEN.id
        with pytest.raises(OutsideKey, match="has read"):
            scene.guard.check(feed, Role.INGEST, given)


def test_prefixes_restrict_a_key_to_feeds(scene: Scene) -> None:
    given = host_key(scene, "team-a-", "shared")
    for name in ("team-a-orders", "shared", "shared-2"):
        assert scene.guard.check(key_of(name, 3), Role.ADMIN, given).bound == EVERYTHING
        assert scene.guard.check_host(Role.ADMIN, given, name).permits(name)
    for name in ("team-b-orders", "team-a", FEED):
        with pytest.raises(OutsideKey, match="does not permit this feed"):
            scene.guard.check(name, Role.READ, given)
        with pytest.raises(OutsideKey, match="does not permit the feed"):
            scene.guard.check_host(Role.ADMIN, given, name)
    assert not scene.guard.check_host(Role.ADMIN, given).permits("team-b-orders")


def test_a_credential_of_the_host_closes_every_feed(scene: Scene) -> None:
    """An open host without credentials is open; the first key of the host closes it."""
    scene.guard.check(FEED, Role.READ, None)
    scene.guard.check_host(Role.ADMIN, None)
    host_key(scene)
    with pytest.raises(NoPasswordSet, match="opens to a key or token only"):
        scene.guard.check(FEED, Role.READ, None)
    with pytest.raises(NoPasswordSet, match=r"tidings keys create --host --role admin"):
        scene.guard.check_host(Role.ADMIN, None)


def test_passwords_of_the_host_open_feeds_without_passwords(scene: Scene) -> None:
    """A password that was replaced for a feed must not open it as a password of the host."""
    own, every = (hash_password(each, salt=b"s" * 16, now_ms=0) for each in ("own", SECRET))
    scene.profiles.save(HOST, Profile(read_passwords=(every,), ingest_passwords=(every,)))
    scene.profiles.save(FEED, Profile(ingest_passwords=(own,)))
    scene.guard.check(FEED, Role.INGEST, Credential("own"))
    scene.guard.check("other", Role.ADMIN, Credential(SECRET))
    scene.guard.check_host(Role.ADMIN, Credential(SECRET), "new")
    refused = [(FEED, SECRET), ("other", "own"), (HOST, "own")]
    for feed, secret in refused:
        with pytest.raises(WrongPassword):
            scene.guard.check(feed, Role.INGEST, Credential(secret))
    with pytest.raises(NoPasswordSet):
        scene.guard.check(FEED, Role.READ, Credential(SECRET))


def test_keys_of_feeds_do_not_open_the_host(scene: Scene) -> None:
    given = scene.key(Role.ADMIN)
    with pytest.raises(WrongKey, match="is not a key of this host"):
        scene.guard.check_host(Role.ADMIN, shown(given))


def test_only_keys_of_the_host_have_prefixes(scene: Scene) -> None:
    roles = frozenset({Role.READ})
    with pytest.raises(InvalidSetting, match="only for a key of the host"):
        scene.issuer.create(FEED, GIVEN, Key("", "", roles, feeds=("a",)))
    for wrong in (("A",), ("a*",), ("",), ("a",) * (limits.KEY_PREFIXES_MAX + 1)):
        with pytest.raises(InvalidSetting, match="prefix"):
            scene.issuer.create(HOST, GIVEN, Key("", "", roles, feeds=wrong))


def test_a_restricted_key_cannot_use_the_host(scene: Scene) -> None:
    """It may read its part of every feed, but the list of feeds has no parts."""
    wanted = Key("", "", frozenset({Role.READ}), bound_of(["video"], []))
    scene.issuer.create(HOST, GIVEN, wanted)
    assert scene.guard.check(FEED, Role.READ, shown(GIVEN)).is_bounded
    with pytest.raises(OutsideKey, match="needs all of it"):
        scene.guard.check_host(Role.READ, shown(GIVEN))


def test_a_revoked_key_of_the_host_ends_its_connections(scene: Scene) -> None:
    given = host_key(scene, role=Role.READ)
    allowed = scene.guard.check(FEED, Role.READ, given)
    scene.guard.check_held(FEED, allowed.admission, scene.now_ms, scene.now_ms)
    scene.issuer.revoke(HOST, GIVEN.id)
    with pytest.raises(KeyEnded):
        scene.guard.check_held(FEED, allowed.admission, scene.now_ms, scene.now_ms)


def test_a_key_of_the_host_is_read_once_for_all_feeds(scene: Scene) -> None:
    """The read at the feed finds nothing, and is not repeated while the key is cached."""
    given, stored = host_key(scene, role=Role.READ), scene.keys
    assert isinstance(stored, Counting)
    key_ring = KeyRing(stored, scene.clock, scene.clock, scene.guard.failures)
    stored.reads = 0
    assert key_ring.may_block(FEED, given)
    for feed in (FEED, "other", FEED, HOST):
        key_ring.authorize(feed, Role.READ, given)
    assert stored.reads == 2
    assert not key_ring.may_block(FEED, given)
    scene.now_ms += limits.KEY_AGE_MS
    key_ring.authorize(FEED, Role.READ, given)
    assert stored.reads == 3


def claims(*grants: tuple[str, str]) -> dict[str, object]:
    return {"exp": 1, "feeds": [{"feed": feed, "roles": [role]} for feed, role in grants]}


@pytest.mark.parametrize(
    ("granted", "feed", "opens"),
    [
        ("team-a-*", "team-a-orders", True),
        ("team-a-*", "team-a-", True),
        ("team-a-*", "team-b", False),
        ("*", "anything", True),
        ("team-a-orders", "team-a-orders-2", False),
        ("orders", "orders", True),
    ],
)
def test_a_grant_may_name_a_prefix(granted: str, feed: str, *, opens: bool) -> None:
    token = claims((granted, "read"))
    for key in (feed, key_of(feed, 2)):
        if opens:
            assert grant_of(token, "feeds", key, Role.READ).bound == EVERYTHING
        else:
            with pytest.raises(OutsideKey):
                grant_of(token, "feeds", key, Role.READ)


def test_grants_with_prefixes_are_grants_at_the_host() -> None:
    """All of them count together; a grant of one feed, or of another role, does not."""
    token = claims(("a-*", "admin"), ("main", "admin"), ("b-*", "admin"), ("c-*", "read"))
    assert grant_of(token, "feeds", HOST, Role.ADMIN).feed_prefixes == ("a-", "b-")
    whole = claims(("a-*", "admin"), ("*", "admin"))
    assert grant_of(whole, "feeds", HOST, Role.ADMIN).feed_prefixes == ()
    for other in (claims(("main", "admin")), claims(("*", "read"))):
        with pytest.raises(OutsideKey, match="at the host"):
            grant_of(other, "feeds", HOST, Role.ADMIN)


class TestAccess:
    """Which callers may create and delete feeds."""

    def directory(self, scene: Scene) -> Directory:
        return Directory(scene.feeds, frozenset({FEED}), scene.clock)

    def test_any_caller_on_an_open_host(self, scene: Scene) -> None:
        for name in (FEED, "new"):
            admit(scene.guard, self.directory(scene), name, Role.ADMIN, None)

    def test_only_its_owner_deletes_a_protected_feed(self, scene: Scene) -> None:
        """On an open host; a feed that was deleted has no owner any more."""
        given = shown(scene.key(Role.ADMIN))
        directory = self.directory(scene)
        with pytest.raises(NoPasswordSet):
            admit(scene.guard, directory, FEED, Role.ADMIN, None)
        admit(scene.guard, directory, FEED, Role.ADMIN, given)
        scene.feeds.save(FeedRecord(FEED, is_live=False))
        directory.forget()
        admit(scene.guard, directory, FEED, Role.ADMIN, None)

    def test_credentials_of_the_host_decide_if_there_are_any(self, scene: Scene) -> None:
        """The feed's own admin cannot delete it then."""
        own, given = shown(scene.key(Role.ADMIN)), host_key(scene, "ma", "new")
        directory = self.directory(scene)
        for name in (FEED, "new"):
            admit(scene.guard, directory, name, Role.ADMIN, given)
            with pytest.raises(NoPasswordSet):
                admit(scene.guard, directory, name, Role.ADMIN, None)
            with pytest.raises(WrongKey):
                admit(scene.guard, directory, name, Role.ADMIN, own)
        with pytest.raises(OutsideKey):
            admit(scene.guard, directory, "other", Role.ADMIN, given)
