"""The routes that create, list, show and delete the feeds of a host (PROTOCOL 23)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from tidings.core import errors, limits
from tidings.core.auth.guard import ADMIN, ALL, READ_ALL, Role
from tidings.core.errors import InvalidFeed, InvalidSetting
from tidings.core.feeds.access import admit
from tidings.core.feeds.records import (
    DELETED,
    DELETING,
    LIVE,
    TABLES_DROPPED,
    TABLES_KEPT,
    TABLES_PENDING,
)
from tidings.core.model.timestamps import from_ms_if_set
from tidings.core.settings.documents import (
    SETTINGS,
    profile_fields,
    request_field,
    settings_document,
)
from tidings.http import wire
from tidings.http.wire import Call, Example, Fields, Given, Kind, Switch, Time

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.feeds.records import FeedRecord, Removal
    from tidings.core.feeds.service import Feeds
    from tidings.core.settings.profiles import Profile
    from tidings.http.wire import Declared

_FEEDS = "/feeds"
_FEED = "/feeds/{feed}"
_SCHEMAS = {name: each.schema for name, each in SETTINGS.items()}
Number = Annotated[int, Kind({"type": "integer", "minimum": 1})]


class FeedSettings(Given, example={"leave": True, "forget_after_days": 30}):
    """The settings of a feed, which `profile_fields` checks: a field for each of `SETTINGS`."""

    __annotations__ = {
        name: Annotated[Any, Kind(each.schema), each.meaning] for name, each in SETTINGS.items()
    }
    locals().update(dict.fromkeys(_SCHEMAS))


class FeedsQuery(Given):
    after: Annotated[str, Kind(wire.PLAIN), "the `next` of the previous list"] = ""
    limit: Annotated[int, wire.integer(1, limits.FEEDS_LISTED), "the maximum number of feeds"] = (
        limits.FEEDS_LISTED
    )
    deleted: Annotated[Switch, "include feeds that were deleted and removed"] = False


class Deletion(Given, first=("force", "tables")):
    # Without it, `Feeds.delete` refuses the request.
    confirm: Annotated[
        str | None,
        Kind({**wire.PLAIN, "examples": [wire.EXAMPLE_FEED]}),
        "the name of the feed again",
    ]
    force: Annotated[
        Switch, "delete the feed although it has named consumers, webhooks or a relay"
    ] = False
    tables: Annotated[Switch, "also remove its Iceberg tables"] = False


class FeedSummary(Fields):
    feed: Annotated[str, Example(wire.EXAMPLE_FEED)]
    state: Annotated[str, wire.one_of(LIVE, DELETING, DELETED), Example(DELETING)]
    number: Number
    created_at: Annotated[Time | None, Example(wire.EXAMPLE_TIME)]
    deleted_at: Annotated[Time | None, Example(wire.EXAMPLE_TIME)]
    by: Annotated[str, Example("key 3k2m9c0q8xw1")]

    @classmethod
    def of(cls, record: FeedRecord, **others: Any) -> Self:
        created, deleted = from_ms_if_set(record.created_ms), from_ms_if_set(record.deleted_ms)
        times = {"created_at": created, "deleted_at": deleted}
        return cls.copy_of(record, feed=record.name, **times, **others)


class RemovalReport(Fields, name=""):
    """The removal of the data of an earlier feed of the name."""

    number: Number
    state: Annotated[str, wire.one_of(DELETING, DELETED)]
    deleted_at: Annotated[Time | None, Example(wire.EXAMPLE_TIME)]
    done_at: Time | None
    tables: Annotated[str, wire.one_of(TABLES_KEPT, TABLES_PENDING, TABLES_DROPPED)]
    removed: Annotated[dict[str, int], Example({"log": 2})]

    @classmethod
    def of(cls, removal: Removal) -> Self:
        return cls.copy_of(
            removal,
            state=DELETED if removal.is_done else DELETING,
            deleted_at=from_ms_if_set(removal.deleted_ms),
            done_at=from_ms_if_set(removal.done_ms),
            removed=dict(removal.counts),
        )


class FeedReport(FeedSummary, name="FeedRecord"):
    settings: (
        Annotated[
            dict[str, Any],
            Kind({"type": "object", "required": [*_SCHEMAS], "properties": _SCHEMAS}),
        ]
        | None
    )
    removals: list[RemovalReport]


class FeedList(Fields, name="Feeds"):
    feeds: list[FeedSummary]
    next: str | None


@dataclass(frozen=True)
class FeedRouter(wire.Routes, function="amend", error=InvalidFeed):
    """The endpoint of the routes of feeds."""

    guard: Guard
    service: Feeds

    @wire.get(_FEEDS, READ_ALL, "23.5", errors=(InvalidFeed,))
    def list_feeds(self, call: Call, query: FeedsQuery) -> FeedList:
        """Return all feeds of the host."""
        found = self._permitted(call.allowed, query.after, query.limit)
        shown = [each for each in found if query.deleted or each.state != DELETED]
        # An answer with fewer feeds is not the last one, because feeds that are not shown count.
        after = found[-1].name if len(found) >= query.limit else None
        return FeedList(feeds=[FeedSummary.of(each) for each in shown], next=after)

    @wire.put(
        _FEED,
        ADMIN,
        "23.1",
        wrong=InvalidSetting,
        headers=("If-None-Match",),
        status=201,
        more=(200,),
        errors=(InvalidSetting, errors.FeedExists),
    )
    def put_feed(self, call: Call, body: FeedSettings) -> FeedReport:
        """Create a feed, or change its settings."""
        name, by = call.request.feed, call.caller
        fields = profile_fields(body.sent, name)

        def change(profile: Profile) -> Profile:
            return replace(profile, **fields)

        only_new = call.request.only_new
        try:
            record, created = self.service.create(name, change, by=by, only_new=only_new)
        except InvalidSetting as error:
            raise request_field(error) from None
        call.status = 201 if created else 200
        return self._report(record)

    @wire.get(_FEED, READ_ALL, "23.4")
    def get_feed(self, call: Call) -> FeedReport:
        """Return the record of a feed."""
        record = self.service.show(call.request.feed)
        # A key that only creates and deletes feeds can follow the removal of a feed.
        given = call.credential
        if record.is_live and not call.operator:
            self.guard.check(record.key, Role.READ, given, unrestricted=True, other=Role.ADMIN)
        elif not call.operator:
            self.guard.check_host(Role.READ, given, record.name, other=Role.ADMIN)
        return self._report(record)

    @wire.delete(_FEED, ADMIN, "23.6", status=202, more=(200,), errors=(errors.FeedInUse,))
    def delete_feed(self, call: Call, query: Deletion) -> FeedReport:
        """Delete a feed with all its data."""
        record = self.service.delete(
            call.request.feed,
            confirm=query.confirm or "",
            force=query.force,
            tables=query.tables,
            by=call.caller,
        )
        call.status = 202 if record.state == DELETING else 200
        return self._report(record)

    def admit(self, found: Declared, call: Call) -> Allowed:
        """Return the rights of the caller; `get_feed` checks them itself, after the name."""
        given = call.credential
        if found.need is ADMIN:
            return admit(self.guard, self.service.directory, call.request.feed, Role.ADMIN, given)
        if call.request.parameters:
            return ALL
        return self.guard.check_host(Role.READ, given, other=Role.ADMIN)

    def _permitted(self, allowed: Allowed, after: str, limit: int) -> list[FeedRecord]:
        """Return at most *limit* records above *after* by name, only those that *allowed* names."""
        found: list[FeedRecord] = []
        for prefix in sorted(allowed.feed_prefixes) or [""]:
            if len(found) < limit:
                part = self.service.list(max(after, _before(prefix)), limit - len(found))
                found += [each for each in part if each.name.startswith(prefix)]
                after = found[-1].name if found else after
        return found

    def _report(self, record: FeedRecord) -> FeedReport:
        """Return the record with its settings and removals."""
        profile = self.service.profiles.profile(record.key) if record.is_live else None
        removals = [RemovalReport.of(each) for each in record.removals]
        settings = profile and settings_document(profile)
        return FeedReport.of(record, settings=settings, removals=removals)


def _before(prefix: str) -> str:
    """Return a text that is above all names below *prefix*, and below all names that have it."""
    return f"{prefix[:-1]}{chr(ord(prefix[-1]) - 1)}~" if prefix else ""
