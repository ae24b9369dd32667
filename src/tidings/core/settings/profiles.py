"""The profile of a feed, with its links, compatibility, passwords, resources and lost pages.

The profile decides how a feed behaves. The host has a profile of its own, under `model.feeds.HOST`:
its credentials open every feed, and new feeds begin with its other settings. The owner of the feed
changes the profile at run time, and changes take effect within seconds.

A restore or a promotion may lose pages that readers saw. The numbers of these pages are never used
again, so a cursor with one of these numbers proves that its consumer saw data that the feed does
not have any more. Only a full copy of the state repairs that consumer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from tidings.core import limits
from tidings.core.errors import InvalidOperation, InvalidSetting, TidingsError, Unavailable
from tidings.core.model.cursors import Place, Replication
from tidings.core.model.feeds import HOST, Retention, public_name
from tidings.core.newest import Newest
from tidings.core.records import Kind, Layout, Records, tuple_codec, until_saved
from tidings.core.settings.values import Ended, Resource, check_all, may_be_forgotten

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from tidings.core.effects import Clock
    from tidings.core.model.cursors import Cursor
    from tidings.core.model.feeds import FeedNames
    from tidings.core.records import RecordStore
    from tidings.core.settings.values import Admission, Endings


Lost = tuple[int, int]  # the first and the last page that a restore or promotion lost

OPLOG = "oplog"
COMPATS = ("", OPLOG)
_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}")
_PLACEHOLDERS = {"type", "id"}

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Profile:
    """The settings of one feed.

    *object_url* is the template of the link `ref` in events; if it is empty, events have no `ref`.
    If *compat* is `oplog`, the feed answers as oplog did. If *leave* is True, removed parents are
    stored for consumers with `leave=true`. Listeners (clients of Triton's protocol) may register
    for *resources*. *max_age_s* is the time for which the log keeps items for listeners, or 0 for
    the retention of the deployment. *push_lanes* is the number of followers that push to the
    WebSockets of a stage; a server has 1.

    If *ids_personal* is True, the ids of objects are personal data, which an erasure removes from
    earlier entries. *forget_after_days* is the number of days after which a deleted object is
    erased, or 0 if deleted objects are not erased.

    The passwords are hashes of `auth.passwords`, newest first. A role has at most
    `limits.PASSWORDS_MAX` passwords, so that clients can move from one password to the next.
    *ended* are the keys that ended recently; their connections must be closed. *lost* are the
    ranges of pages that restores and promotions lost. *closed* becomes True before the first key or
    user of the feed is stored, and stays True after the last key or user has ended. A write is
    rejected if *version* has changed in the meantime.
    """

    object_url: str = ""
    compat: str = ""
    leave: bool = False
    read_passwords: tuple[str, ...] = field(default=(), repr=False)
    ingest_passwords: tuple[str, ...] = field(default=(), repr=False)
    version: int = 0
    resources: tuple[Resource, ...] = ()
    max_age_s: int = 0
    ended: tuple[Ended, ...] = ()
    lost: tuple[Lost, ...] = ()
    push_lanes: int = 1
    closed: bool = False
    ids_personal: bool = True
    forget_after_days: int = 0

    @property
    def is_protected(self) -> bool:
        """Return True if the feed has or had a credential; then every role needs a credential."""
        return self.closed or bool(self.read_passwords or self.ingest_passwords)


PROFILES = Kind("profile", is_due=True)
_LAYOUT = Layout(
    Profile,
    {
        "read_passwords": "read",
        "ingest_passwords": "ingest",
        "max_age_s": "max_age",
        "forget_after_days": "forget_after",
    },
    {
        "resources": Layout(Resource, codecs={"subs": (list, tuple)}).nested_tuple,
        # A text has half the size of a mapping, and a profile may have a thousand endings.
        "ended": tuple_codec(
            (
                lambda ended: f"{ended.key} {ended.noted_ms} {ended.from_ms}",
                lambda text: Ended(text.split()[0], *map(int, text.split()[1:])),
            )
        ),
        "lost": tuple_codec(
            (lambda lost: f"{lost[0]}-{lost[1]}", lambda text: tuple(map(int, text.split("-"))))
        ),
    },
)


class ProfileStore:
    """The profile of each feed."""

    def __init__(self, records: RecordStore) -> None:
        self._records = Records(records, PROFILES, _LAYOUT)

    def profile(self, feed: str) -> Profile:
        """Return the stored profile, or the default profile, strongly consistent."""
        return self._records.get(feed) or Profile()

    def save(self, feed: str, profile: Profile) -> bool:
        """Replace the profile if the stored version is `profile.version`; return False otherwise.

        The new stored version is `profile.version + 1`, so that concurrent changes are not lost.
        """
        return self._records.save(feed, profile)


def check_object_url(template: str) -> str:
    """Return *template* if it is valid or empty.

    Raises:
        InvalidSetting: *template* is too long, is not printable ASCII, has another scheme than
            HTTP's, or has an unknown placeholder.
    """
    if len(template) > limits.OBJECT_URL_CHARS_MAX:
        rule = f"holds at most {limits.OBJECT_URL_CHARS_MAX} characters, got {len(template)}"
        raise InvalidSetting(rule, field="object_url")
    if not re.fullmatch(r"[!-~]*", template):
        rule = "must be printable ASCII without blanks"
        raise InvalidSetting(rule, field="object_url", value=template)
    if template and not template.startswith(("http://", "https://", "/")):
        rule = "must begin with http://, https:// or /"  # readers turn the result into links
        raise InvalidSetting(rule, field="object_url", value=template)
    if not set(_PLACEHOLDER.findall(template)) <= _PLACEHOLDERS:
        rule = "may have only the placeholders {{type}} and {{id}}"
        raise InvalidSetting(rule, field="object_url", value=template)
    return template


def check_compat(name: str) -> str:
    """Return *name* if it is a known compatibility mode or empty.

    Raises:
        InvalidSetting: the mode is unknown.
    """
    if name not in COMPATS:
        raise InvalidSetting(f"must be empty or {OPLOG}", field="compat", value=name)
    return name


def check_push_lanes(lanes: int) -> int:
    """Return *lanes* if a feed can have this number of lanes.

    Raises:
        InvalidSetting: the number is out of range.
    """
    if not 1 <= lanes <= limits.PUSH_LANES_MAX:
        rule = f"must be from 1 to {limits.PUSH_LANES_MAX}"
        raise InvalidSetting(rule, field="push_lanes", value=lanes)
    return lanes


def check_forget_after(days: int) -> int:
    """Return *days* if deleted objects can be erased after this time; 0 turns the setting off.

    Raises:
        InvalidSetting: the number is out of range.
    """
    if not 0 <= days <= limits.FORGET_AFTER_DAYS_MAX:
        rule = f"must be from 1 to {limits.FORGET_AFTER_DAYS_MAX} days, or 0 for never"
        raise InvalidSetting(rule, field="forget_after", value=days)
    return days


def validate(profile: Profile) -> Profile:
    """Return *profile* if it may be saved.

    Raises:
        InvalidSetting: a field breaks its rule.
    """
    check_object_url(profile.object_url)
    check_compat(profile.compat)
    check_all(profile.resources, profile.max_age_s)
    check_push_lanes(profile.push_lanes)
    check_forget_after(profile.forget_after_days)
    for name in ("read_passwords", "ingest_passwords"):
        if len(getattr(profile, name)) > limits.PASSWORDS_MAX:
            rule = f"a feed has at most {limits.PASSWORDS_MAX} passwords of each role"
            raise InvalidSetting(rule, field=name)
    return profile


def endings_of(*profiles: Profile) -> Endings:
    """Return the keys that ended recently, by the profiles of a feed and of its host."""
    endings: dict[str, int] = {}
    for each in (ended for profile in profiles for ended in profile.ended):
        endings[each.key] = max(each.from_ms, endings.get(each.key, 0))
    return endings


def endings_at(profiles: ProfileStore, feed: str) -> Endings:
    """Return the keys that ended recently, of *feed* and of the host."""
    return endings_of(profiles.profile(feed), profiles.profile(HOST))


def must_disconnect(endings: Endings, admission: Admission, since_ms: int, now_ms: int) -> bool:
    """Return True if a connection admitted with *admission* at *since_ms* must be closed."""
    if admission.key and may_be_forgotten(endings, since_ms, now_ms):
        return True
    return admission.has_ended(endings, now_ms)


def change(profiles: ProfileStore, feed: str, make: Callable[[Profile], Profile]) -> None:
    """Replace the profile of *feed* by the result of *make*, unless both are equal.

    Raises:
        Unavailable: other processes saved the profile at each attempt.
    """

    def attempt() -> bool | None:
        profile = profiles.profile(feed)
        changed = make(profile)
        return changed == profile or profiles.save(feed, changed) or None

    until_saved(attempt, f"the profile of {public_name(feed)}")


def close(profiles: ProfileStore, feed: str) -> None:
    """Close every role of *feed* that has no password, as a key or user is about to be stored.

    Raises:
        Unavailable: other processes saved the profile at each attempt.
    """
    change(profiles, feed, lambda profile: replace(profile, closed=True))


def remember_lost(profiles: ProfileStore, feed: str, lost: Lost) -> None:
    """Record that readers may have received the pages *lost*, which *feed* does not have.

    Raises:
        Unavailable: other processes saved the profile at each attempt.
    """
    change(profiles, feed, lambda profile: with_lost(profile, lost))


def with_lost(profile: Profile, lost: Lost) -> Profile:
    """Return *profile* with the lost pages *lost*, in place of a range with the same first page."""
    if lost in profile.lost:
        return profile
    others = [each for each in profile.lost if each[0] != lost[0]]
    return replace(profile, lost=merge_lost([*others, lost]))


def merge_lost(lost: Iterable[Lost]) -> tuple[Lost, ...]:
    """Return the ranges *lost* in the order of the log. Merge the oldest if there are too many.

    A reader with a cursor between two merged ranges then gets an unnecessary full copy.
    """
    ranges = sorted(lost)
    while len(ranges) > limits.LOST_RANGES_MAX:
        ranges[:2] = [(ranges[0][0], ranges[1][1])]
    return tuple(ranges)


def hit(cursor: Cursor, lost: Iterable[Lost]) -> bool:
    """Return True if a consumer with *cursor* may have received lost data.

    The rows of a replication may have been read at any time after it began. A replication that
    began before the restore may therefore contain lost data, even if its page is before the lost
    pages.
    """
    for first, last in lost:
        match cursor:
            case Place(page=page) if first <= page <= last:
                return True
            case Replication(page=page, bucket=bucket) if page <= last and (
                page >= first or bucket < limits.BUCKETS
            ):
                return True
    return False


def possible(known: int, elapsed_ms: int) -> int:
    """Return how many page numbers after *known* may have been assigned in *elapsed_ms*.

    The result is at most a small part of the remaining numbers. Otherwise a wrong clock could use
    up all numbers.
    """
    seconds = (max(0, elapsed_ms) + limits.CLOCK_SKEW_MS_MAX) // 1000
    left = max(0, limits.PAGE_NUMBER_MAX - known)
    return min(seconds * limits.NUMBERS_PER_S_MAX, left // limits.JUMPS_MIN)


class Recent(Generic[K, V]):
    """A cache of the results of *read* by key. A result is used for *age_ms()*, or until `forget`.

    The result of a read that began before `forget` is not used again, because it may be the old
    value. If several threads find an expired value at the same time, each of them calls *read*.
    """

    def __init__(self, read: Callable[[K], V], age_ms: Callable[[], int], clock: Clock) -> None:
        self._read, self._age_ms, self._clock = read, age_ms, clock
        # There is no lock, because a server reads in its event loop. Each value is stored with the
        # token that was current when its read began. `forget` replaces the token, so that the value
        # is not used any more.
        self._known: Newest[K, tuple[int, V, object]] = Newest()
        self._tokens: Newest[K, object] = Newest()

    def get(self, key: K) -> V:
        """Return the value of *key* as it was stored at some time in the last `age_ms()`."""
        now, known, token = self._clock(), self._known.get(key), self._tokens.get(key)
        if known is not None and known[2] is token and 0 <= now - known[0] < self._age_ms():
            return known[1]
        value = self._read(key)
        self._known[key] = (now, value, token)
        return value

    def forget(self, key: K) -> None:
        """Let the next `get` read the value, because it was changed."""
        self._tokens[key] = object()
        self._known.pop(key, None)


class RecentProfiles(ProfileStore):
    """A cache of another `ProfileStore`, for `limits.PROFILE_AGE_MS`.

    A profile saved through this class takes effect at once; call `forget` after any other write.
    """

    def __init__(self, profiles: ProfileStore, clock: Clock) -> None:
        self._profiles = profiles
        self._recent = Recent(profiles.profile, lambda: limits.PROFILE_AGE_MS, clock)

    def profile(self, feed: str) -> Profile:
        return self._recent.get(feed)

    def forget(self, feed: str) -> None:
        """Let the next `profile` read the stored profile."""
        self._recent.forget(feed)

    def fresh(self, feed: str) -> Profile:
        """Return the stored profile."""
        self.forget(feed)
        return self.profile(feed)

    def save(self, feed: str, profile: Profile) -> bool:
        try:
            return self._profiles.save(feed, profile)
        finally:  # also after an error, because the write may have been done
            self.forget(feed)


@dataclass(frozen=True, slots=True)
class MaxAges:
    """The retention of each feed that has a `maxAge` for listeners."""

    profiles: ProfileStore

    def __call__(self, feed: str) -> Retention | None:
        seconds = self.profiles.profile(feed).max_age_s
        return Retention(age_ms=seconds * 1000, records_min=0) if seconds else None


@dataclass(frozen=True, slots=True)
class PushLanes:
    """The number of push lanes of each feed, from the cache or freshly read."""

    profiles: RecentProfiles

    def __call__(self, feed: str) -> int:
        return self.profiles.profile(feed).push_lanes

    def fresh(self, feed: str) -> int:
        return self.profiles.fresh(feed).push_lanes


@dataclass(frozen=True, slots=True)
class Losses:
    """The pages that each feed lost. See `replication.copies.CopiedLosses` for chained feeds."""

    profiles: ProfileStore

    def __call__(self, feed: str, cursor: Cursor) -> bool:
        """Return True if a reader with *cursor* may have seen pages that were lost."""
        return isinstance(cursor, Place | Replication) and hit(cursor, self.ranges(feed))

    def ranges(self, feed: str) -> tuple[Lost, ...]:
        """Return the first and last page of each loss of *feed*."""
        return self.profiles.profile(feed).lost

    def is_copy(self, feed: str) -> bool:
        """Return True if *feed* is chained, so that its pages are those of its upstream."""
        return False

    def copied_s(self, feed: str, page: int) -> int | None:
        """Return the second in which *page*, the last one, was committed upstream; 0 if unknown.

        Return None for a local feed, for which the time is not needed: its next page is committed
        later than now, whereas the next page of a copy may have been committed upstream long ago.
        """
        return None


_OPLOG_INVALID = 503  # oplog's status for invalid operations; most of its producers then retry


def is_oplog(profiles: ProfileStore, feed_names: FeedNames, feed: str) -> bool:
    """Return True if *feed* answers as oplog did.

    Return False if the feed is unknown, or if its profile cannot be read.
    """
    try:
        key = feed_names.find(feed)
        return key is not None and profiles.profile(key).compat == OPLOG
    except Unavailable:
        return False


def oplog_status(error: TidingsError, status: int) -> int:
    """Return oplog's status for *error*, for which Tidings uses *status*."""
    return _OPLOG_INVALID if isinstance(error, InvalidOperation) else status
