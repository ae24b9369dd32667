"""Serve the routes that create, list, show and delete the feeds of a host (PROTOCOL 23)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.errors import InvalidFeed, InvalidSetting, parse_field
from tidings.core.feeds.access import admit
from tidings.core.feeds.records import DELETED, DELETING
from tidings.core.model.json_body import object_from
from tidings.core.model.timestamps import from_ms
from tidings.core.settings.documents import profile_fields, request_field, settings_document
from tidings.http.answers import json_answer
from tidings.http.endpoints.erasures import caller
from tidings.http.routes import FEED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.feeds.records import FeedRecord, Removal
    from tidings.core.feeds.service import Feeds
    from tidings.core.settings.profiles import Profile
    from tidings.http.request import Answer, Request

Document = dict[str, Any]
_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class FeedRouter:
    """The endpoint of the routes of feeds."""

    feeds: Feeds
    guard: Guard

    def __call__(self, request: Request) -> Answer:
        """Answer a request.

        Raises:
            Rejected: access is denied, a setting or a parameter is invalid, the feed does not
                exist, or it is in use.
            Unavailable: the request may have been done; repeat it.
        """
        match request.route.partition(" ")[0], request.route.endswith(FEED):
            case "PUT", _:
                return self._put(request)
            case "DELETE", _:
                return self._delete(request)
            case _, True:
                return self._show(request)
        return self._list(request)

    def _put(self, request: Request) -> Answer:
        name = request.feed
        allowed = self._admit_change(request)
        settings = object_from(request.content(), InvalidSetting)
        fields = profile_fields(settings, name)

        def change(profile: Profile) -> Profile:
            return replace(profile, **fields)

        by = caller(allowed, request.credential)
        try:
            record, created = self.feeds.create(name, change, by=by, only_new=request.only_new)
        except InvalidSetting as error:
            raise request_field(error) from None
        return json_answer(201 if created else 200, self._describe(record))

    def _delete(self, request: Request) -> Answer:
        allowed = self._admit_change(request)
        _check_query(request.query, "confirm", "force", "tables")
        record = self.feeds.delete(
            request.feed,
            confirm=request.query.get("confirm", ""),
            force=_switch(request.query, "force"),
            tables=_switch(request.query, "tables"),
            by=caller(allowed, request.credential),
        )
        return json_answer(202 if record.state == DELETING else 200, self._describe(record))

    def _show(self, request: Request) -> Answer:
        record = self.feeds.show(request.feed)
        given = request.credential
        # A key that only creates and deletes feeds can follow the removal of a feed.
        if record.is_live:
            self.guard.check(record.key, Role.READ, given, unrestricted=True, other=Role.ADMIN)
        else:
            self.guard.check_host(Role.READ, given, record.name, other=Role.ADMIN)
        return json_answer(200, self._describe(record))

    def _list(self, request: Request) -> Answer:
        query = request.query
        allowed = self.guard.check_host(Role.READ, request.credential, other=Role.ADMIN)
        _check_query(query, "after", "limit", "deleted")
        most = limits.FEEDS_LISTED
        limit = parse_field(query.get("limit", str(most)), "limit", 1, most, InvalidFeed)
        with_deleted = _switch(query, "deleted")
        found = self._permitted(allowed, query.get("after", ""), limit)
        shown = [record_document(each) for each in found if with_deleted or each.state != DELETED]
        # An answer with fewer feeds is not the last one, because feeds that are not shown count.
        after = found[-1].name if len(found) >= limit else None
        return json_answer(200, {"feeds": shown, "next": after})

    def _permitted(self, allowed: Allowed, after: str, limit: int) -> list[FeedRecord]:
        """Return at most *limit* records above *after* by name, only those that *allowed* names."""
        found: list[FeedRecord] = []
        for prefix in sorted(allowed.feeds) or [""]:
            if len(found) < limit:
                part = self.feeds.list(max(after, _before(prefix)), limit - len(found))
                found += [each for each in part if each.name.startswith(prefix)]
                after = found[-1].name if found else after
        return found

    def _admit_change(self, request: Request) -> Allowed:
        directory, given = self.feeds.directory, request.credential
        return admit(self.guard, directory, request.feed, Role.ADMIN, given)

    def _profile(self, feed: str) -> Profile:
        return self.feeds.profiles.profile(feed)

    def _describe(self, record: FeedRecord) -> Document:
        """Return the record with its settings and removals."""
        profile = self._profile(record.key) if record.is_live else None
        return {
            **record_document(record),
            "settings": profile and settings_document(profile),
            "removals": [removal_document(each) for each in record.removals],
        }


def record_document(record: FeedRecord) -> Document:
    """Return the record without the settings and the removals."""
    return {
        "feed": record.name,
        "state": record.state,
        "number": record.number,
        "created_at": _time(record.created_ms),
        "deleted_at": _time(record.deleted_ms),
        "by": record.by,
    }


def removal_document(removal: Removal) -> Document:
    return {
        "number": removal.number,
        "state": DELETED if removal.is_done else DELETING,
        "deleted_at": _time(removal.deleted_ms),
        "done_at": _time(removal.done_ms),
        "tables": removal.tables,
        "removed": dict(removal.counts),
    }


def _before(prefix: str) -> str:
    """Return a text that is above all names below *prefix*, and below all names that have it."""
    return f"{prefix[:-1]}{chr(ord(prefix[-1]) - 1)}~" if prefix else ""


def _time(ms: int) -> str | None:
    return from_ms(ms) if ms else None


def _check_query(query: Mapping[str, str], *known: str) -> None:
    for name in query:
        if name not in known:
            rule = f"is not known here; the known parameters are {', '.join(known)}"
            raise InvalidFeed(rule, field=name)


def _switch(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "false")
    if text not in _SWITCHES:
        raise InvalidFeed("must be true or false", field=name, value=text)
    return _SWITCHES[text]
