"""Create, show, list and delete feeds.

A deletion is one write of the record; a job removes the data afterwards (`feeds.remover`). A feed
that is created after a deletion has another key, and its log begins with a jump over all numbers
that readers of the earlier feed may have seen. So every cursor, change id and position of the
earlier feed is reported as lost, as after a restore (`maintenance.restore`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.errors import (
    FeedExists,
    FeedInUse,
    InvalidFeed,
    TooManyRequests,
    UnknownFeed,
)
from tidings.core.feeds.records import TABLES_KEPT, TABLES_PENDING, FeedRecord, Removal
from tidings.core.model.feeds import HOST, check_name
from tidings.core.model.pages import jump
from tidings.core.records import until_saved
from tidings.core.settings.documents import settings_of
from tidings.core.settings.profiles import Profile, change, possible, validate, with_lost

if TYPE_CHECKING:
    from tidings.core.effects import Runtime
    from tidings.core.feeds.directory import Directory
    from tidings.core.log.stores import LogStore
    from tidings.core.maintenance.restore import Numbers
    from tidings.core.settings.documents import settings_of
from tidings.core.settings.profiles import ProfileStore

# Returns the profile with the settings of a request.
# Raises InvalidSetting: a setting is invalid.
ProfileChange = Callable[[Profile], Profile]


def keep(profile: Profile) -> Profile:
    """Implement `ProfileChange` for a request without settings."""
    return profile


class FeedHost(Protocol):
    """The host of feeds. Each method gets the key of a feed.

    A killed process calls no method; the host finds unfinished removals with
    `FeedStore.unfinished`.
    """

    def users_of(self, feed: str) -> Sequence[str]:
        """Return what uses *feed*, for example `the consumer billing`, ordered."""

    def on_feed_deleted(self, feed: str) -> None:
        """End the readers of *feed* and start the removal, after its record was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeds:
    """The service that creates and deletes the feeds of a host.

    A feed with the name of a deleted one is created after `Directory.stale_ms`: otherwise a client
    could create it and lose an acknowledged operation, because another process added it to the
    deleted feed.
    """

    directory: Directory
    profiles: ProfileStore
    log: LogStore
    numbers: Numbers
    runtime: Runtime
    host: FeedHost

    def create(
        self, name: str, settings: ProfileChange = keep, *, by: str = "", only_new: bool = False
    ) -> tuple[FeedRecord, bool]:
        """Create the feed *name* with *settings*, and return its record and True.

        If the feed exists, apply *settings* to it, and return its record and False. A new feed
        begins with the settings of the host (`model.feeds.HOST`), without its credentials. *by* is
        the principal of the caller. With *only_new*, an existing feed is not changed.

        Raises:
            InvalidFeed: the name is not valid.
            FeedExists: *only_new* is True, and the feed exists.
            InvalidSetting: a setting is invalid; nothing was changed.
            TooManyRequests: too many deleted feeds of the name are still being removed.
            Unavailable: a store does not answer; the feed may exist. Repeat the request.
        """
        check_name(name)

        def attempt() -> tuple[FeedRecord, bool] | None:
            record = self.directory.fresh(name)
            if record is not None and record.is_live:
                if only_new:
                    raise FeedExists("exists already", field="feed", value=name)
                self._apply(record.key, settings)
                return record, False
            self._await_others(record)
            created = self._create(name, record, settings, by)
            if created is not None:
                return created, True
            return None

        return until_saved(attempt, f"the record of the feed {name}")

    def show(self, name: str) -> FeedRecord:
        """Return the record of *name*, also of a deleted feed.

        Raises:
            InvalidFeed, UnknownFeed: the host never had such a feed.
        """
        record = self.directory.fresh(check_name(name))
        if record is None:
            raise UnknownFeed("no such feed here", field="feed", value=name)
        return record

    def list(self, after: str = "", limit: int = limits.FEEDS_LISTED) -> Sequence[FeedRecord]:
        """Return at most *limit* records of names above *after*, ordered by name."""
        return self.directory.records(after, limit)

    def delete(
        self, name: str, *, confirm: str, force: bool = False, tables: bool = False, by: str = ""
    ) -> FeedRecord:
        """Delete the feed *name* and return its record; do nothing if it is deleted already.

        *confirm* must be equal to *name*. With *force*, delete the feed although it is used. With
        *tables*, the job of the lake also drops the feed's tables. *by* is the principal of the
        caller. Data is left if the state of the returned record is `records.DELETING`.

        Raises:
            InvalidFeed: the name is not valid, or *confirm* is another text.
            UnknownFeed: the host never had such a feed.
            FeedInUse: the feed is used; the message names the users.
            Unavailable: a store does not answer; the feed may be deleted. Repeat the request.
        """

        def attempt() -> FeedRecord | None:
            record = self.show(name)
            if confirm != name:
                rule = "must repeat the name of the feed, because a deletion cannot be undone"
                raise InvalidFeed(rule, field="confirm", value=confirm)
            if not record.is_live:
                return record
            self._check_unused(record, force=force)
            deleted = self._deleted(record, tables=tables, by=by)
            if self._save(deleted):
                self.host.on_feed_deleted(record.key)
                return replace(deleted, version=record.version + 1)
            return None

        return until_saved(attempt, f"the record of the feed {name}")

    def _deleted(self, record: FeedRecord, *, tables: bool, by: str) -> FeedRecord:
        now = self.runtime.clock()
        last_page = max(record.last_page, self.log.head(record.key))
        kept = TABLES_PENDING if tables else TABLES_KEPT
        return replace(
            record,
            is_live=False,
            deleted_ms=now,
            by=by[: limits.FEED_BY_CHARS_MAX],
            last_page=last_page,
        ).with_removal(Removal(record.number, now, tables=kept))

    def _check_unused(self, record: FeedRecord, *, force: bool) -> None:
        users = () if force else self.host.users_of(record.key)
        if users:
            shown = ", ".join(users[: limits.FEED_USERS_SHOWN])
            more = len(users) - limits.FEED_USERS_SHOWN
            others = f" and {more} more" if more > 0 else ""
            rule = f"is used by {shown}{others}; remove them, or delete with force"
            raise FeedInUse(rule, field="feed", value=record.name)

    def _await_others(self, record: FeedRecord | None) -> None:
        """Wait until no process has a cached record in which the deleted feed exists."""
        if record is None:
            return
        left_ms = self.directory.stale_ms - (self.runtime.clock() - record.deleted_ms)
        if left_ms > 0:  # a clock that was set back must not prolong the wait
            self.runtime.sleep(min(left_ms, self.directory.stale_ms))

    def _create(
        self, name: str, record: FeedRecord | None, settings: ProfileChange, by: str
    ) -> FeedRecord | None:
        """Create the feed after *record*; return None if another request changed the record."""
        now, by = self.runtime.clock(), by[: limits.FEED_BY_CHARS_MAX]
        if record is None:
            created = FeedRecord(name, created_ms=now, by=by)
        else:
            if len(record.unfinished) >= limits.REMOVALS_MAX:
                rule = "has too many deleted feeds that are still being removed; try again later"
                wait_s = limits.REMOVE_SETTLE_MS // 1000
                raise TooManyRequests(rule, retry_after_s=wait_s, field="feed")
            number = record.number + 1
            created = replace(
                record, number=number, is_live=True, created_ms=now, deleted_ms=0, by=by
            )

        def write() -> FeedRecord | None:
            last_page = self._last_page(created)
            self._apply(created.key, settings, last_page)
            if last_page is not None:
                self._skip(created.key, last_page)
            return replace(created, version=created.version + 1) if self._save(created) else None

        # Without transactions, a crash leaves a feed that no request can reach, because the record
        # is written last. The next request completes the feed.
        try:
            return self.log.together(write)
        finally:  # a record that was cached during the transaction may be the old one
            self.directory.forget()

    def _last_page(self, record: FeedRecord) -> int | None:
        """Return the last page that a reader of an earlier feed of the name may know, None if none.

        After a restore, the host does not know the feeds that were created since the backup. So the
        numbers that the restore lost count for every name.
        """
        restored = max((last for _, last in self.profiles.profile(HOST).lost), default=0)
        if record.number == 1 and not restored:
            return None
        return max(record.last_page, restored)

    def _apply(self, key: str, settings: ProfileChange, last_page: int | None = None) -> None:
        """Apply *settings* to the profile of *key*.

        A profile that exists keeps its other fields: another request may have created the feed and
        its credentials in the meantime. *last_page* is the last page of the feeds before *key*.
        """
        new = Profile(**settings_of(self.profiles.profile(HOST)))  # without its credentials

        def made(profile: Profile) -> Profile:
            changed = validate(settings(profile if profile.version else new))
            if last_page is None:
                return changed
            return with_lost(changed, (1, jump_end(last_page) - 1))

        change(self.profiles, key, made)

    def _skip(self, key: str, last_page: int) -> None:
        """Begin the log of *key* after all numbers that readers of earlier feeds may know.

        The page is written before the counter is raised, so that a crash in between leaves no gap.
        If *last_page* is higher after a crash, because of a restore, a second empty page follows.
        """
        end, now = jump_end(last_page), self.runtime.clock()
        last = max((page.number for page in self.log.read(key, 0)), default=0)
        if last < end:
            self.log.put(key, jump(last + 1, end, at_ms=now, expires_ms=now + self.runtime.page_ms))
        self.numbers.raise_head(key, end)

    def _save(self, record: FeedRecord) -> bool:
        try:
            return self.directory.store.save(record)
        finally:  # also after an error, because the write may have been done
            self.directory.forget()


def jump_end(last_page: int) -> int:
    """Return the number of the first page of a feed, an empty one.

    *last_page* is the last page of the earlier feeds of the name. A process may write to a deleted
    feed while its cached record is valid; readers may then know higher numbers than *last_page*.
    """
    return last_page + possible(last_page, limits.FEED_AGE_MS + limits.CREATE_MARGIN_MS) + 1
