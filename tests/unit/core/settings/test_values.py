"""Resources as operators write them.

Admissions: when an open connection must be closed.
"""

from __future__ import annotations

import pytest

from tidings.core import limits
from tidings.core.errors import InvalidSetting
from tidings.core.settings.profiles import Profile, endings_of
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
