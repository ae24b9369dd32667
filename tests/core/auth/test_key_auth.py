"""The key ring: which key opens what, and how soon one that ended does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tidings.core import limits
from tidings.core.auth.guard import Allowed, Credential, Role
from tidings.core.auth.key_auth import KeyRing
from tidings.core.auth.keys import Given, Key
from tidings.core.errors import NoPasswordSet, OutsideKey, Rejected, TooManyRequests, WrongKey
from tidings.core.model.filters import Filter
from tidings.core.settings.revocations import Admission

from tests.core.scene import FEED, Scene, shown
from tests.fakes import MemoryKeys

BOUND = Filter(parents=frozenset({"user/42"}))


class Counting(MemoryKeys):
    """How often a key was read."""

    reads = 0

    def key(self, feed: str, name: str) -> Key | None:
        self.reads += 1
        return super().key(feed, name)


def test_a_key_allows_its_roles_within_its_bound(scene: Scene) -> None:
    """Told with its id and its end, for who stays."""
    given = scene.key(Role.READ, Role.INGEST, bound=BOUND, expires_ms=scene.now_ms + 1)
    for role in (Role.READ, Role.INGEST):
        allowed = scene.guard.check(FEED, role, shown(given))
        admission = Admission(given.id, scene.now_ms + 1)
        assert allowed == Allowed(BOUND, admission, given.id, limits.KEY_STREAMS)
    with pytest.raises(OutsideKey, match="has ingest, read, and this needs admin") as refused:
        scene.guard.check(FEED, Role.ADMIN, shown(given))
    assert (refused.value.status, refused.value.code) == (403, "outside_key")


def test_it_opens_where_there_is_no_password(scene: Scene) -> None:
    """Also as a bearer; nobody else is let in."""
    given = scene.key()
    closed = replace(scene.guard, open=False)
    for credential in (shown(given), Credential(given.encoded(), bearer=True)):
        assert closed.check(FEED, Role.READ, credential).admission.key == given.id
    with pytest.raises(NoPasswordSet):
        closed.check(FEED, Role.READ, Credential("anything"))


def test_an_open_feed_holds_who_shows_a_key_to_it(scene: Scene) -> None:
    """Or a bound would mean nothing on the twin, and a revoked key would go on."""
    given = scene.key(bound=BOUND)
    assert scene.guard.check(FEED, Role.READ, shown(given)).bound == BOUND
    scene.issuer.revoke(FEED, given.id)
    scene.now_ms += limits.KEY_AGE_MS
    with pytest.raises(WrongKey, match="was revoked"):
        scene.guard.check(FEED, Role.READ, shown(given))
    with pytest.raises(NoPasswordSet):
        scene.guard.check(FEED, Role.READ, None)


@pytest.mark.parametrize("wrong", ["id", "secret", "feed"])
def test_what_is_no_key_of_the_feed(scene: Scene, wrong: str) -> None:
    """All of them look alike; the error repeats nothing of it."""
    given = scene.key()
    name = "z" * 12 if wrong == "id" else given.id
    other = Given(name, "x" * 32 if wrong == "secret" else given.secret)
    with pytest.raises(WrongKey, match="is no key of the feed") as refused:
        scene.guard.check("other" if wrong == "feed" else FEED, Role.READ, shown(other))
    assert refused.value.status == 401
    assert other.secret not in str(refused.value.body())


def test_a_key_runs_out(scene: Scene) -> None:
    """At its time, whether it is remembered or not."""
    given = scene.key(expires_ms=scene.now_ms + 10)
    scene.guard.check(FEED, Role.READ, shown(given))
    scene.now_ms += 10
    with pytest.raises(WrongKey, match="has expired"):
        scene.guard.check(FEED, Role.READ, shown(given))


def test_a_key_is_read_once_in_four_seconds() -> None:
    """However often it is shown; a revocation counts with the next read."""
    stored = Counting()
    scene = Scene(keys=stored)
    given = scene.key()
    stored.reads = 0
    for _ in range(100):
        scene.guard.check(FEED, Role.READ, shown(given))
    assert stored.reads == 1
    scene.issuer.revoke(FEED, given.id)
    scene.now_ms += limits.KEY_AGE_MS - 1
    scene.guard.check(FEED, Role.READ, shown(given))
    scene.now_ms += 1
    with pytest.raises(WrongKey):
        scene.guard.check(FEED, Role.READ, shown(given))


def test_a_key_that_was_not_there_may_be_there_the_next_moment(scene: Scene) -> None:
    """Only what is there is remembered."""
    given = Given("0" * 12, "s" * 32)
    with pytest.raises(WrongKey):
        scene.guard.check(FEED, Role.READ, shown(given))
    scene.issuer.create(FEED, given, Key("", "", frozenset({Role.READ})))
    scene.guard.check(FEED, Role.READ, shown(given))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that was shown least recently is read again."""
    monkeypatch.setattr(limits, "KEYS_KNOWN_MAX", 2)
    stored = Counting()
    scene = Scene(keys=stored)
    given = [Given(f"{n:012}", "s" * 32) for n in range(3)]
    for each in given:
        scene.issuer.create(FEED, each, Key("", "", frozenset({Role.READ})))
    ring = KeyRing(stored, scene.clock, scene.misses)
    stored.reads = 0
    for each in (given[0], given[1], given[0], given[2], given[0], given[1]):
        ring.allowed(FEED, Role.READ, shown(each))
    assert stored.reads == 4


def test_a_rate_is_asked_last(scene: Scene) -> None:
    """Who may not ask at all uses nothing of it."""
    given = scene.key(rate=1)
    for _ in range(3):
        with pytest.raises(OutsideKey):
            scene.guard.check(FEED, Role.ADMIN, shown(given))
    scene.guard.check(FEED, Role.READ, shown(given))
    with pytest.raises(TooManyRequests) as refused:
        scene.guard.check(FEED, Role.READ, shown(given))
    assert refused.value.status == 429 and isinstance(refused.value, Rejected)


def test_a_reader_moves_no_consumer(scene: Scene) -> None:
    """Working for one is a role of its own, which who may steer has too."""
    reader, worker = scene.key(Role.READ), scene.key(Role.READ, Role.CONSUME)
    operator = scene.key(Role.ADMIN)
    for given in (worker, operator):
        scene.guard.check(FEED, Role.CONSUME, shown(given))
    with pytest.raises(OutsideKey, match="has read, and this needs consume"):
        scene.guard.check(FEED, Role.CONSUME, shown(reader))
    with pytest.raises(OutsideKey, match="and this needs admin"):
        scene.guard.check(FEED, Role.ADMIN, shown(worker))
