"""The routes by which operators control chained feeds (PROTOCOL 16.11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tidings.core import limits
from tidings.core.auth.guard import ADMIN, ALL, READ_ALL, Role
from tidings.core.auth.passwords import check_password
from tidings.core.errors import (
    IncompleteCopy,
    InvalidRelay,
    InvalidSetting,
    NotChained,
    NothingDone,
    OutsideKey,
    Rejected,
    WrongPassword,
)
from tidings.core.replication.admin import EVERYTHING, LATEST, Action
from tidings.http import wire
from tidings.http.wire import Call, EntryId, Example, Fields, Given, Kind, Time

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.replication.admin import RelayControl
    from tidings.core.replication.relay import RelayPasswords
    from tidings.http.wire import Declared

_RELAY = "/feeds/{feed}/relay"
_FORBIDDEN = 403
_ERRORS = (InvalidRelay, NotChained, NothingDone)


def _parse_password(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return check_password(value) if value else ""


# Requests. `RelayControl.act` checks the fields, after the state of the feed.


_Why = Annotated[str, Kind({**wire.TEXT, "maxLength": limits.WHY_CHARS_MAX})]


class RelayReset(Given):
    to: Annotated[
        str,
        Kind({"anyOf": [{"type": "string", "enum": [EVERYTHING, LATEST]}, wire.ID]}),
        "start with everything (the upstream's state, then its log), latest (new events only) or"
        " the id of an event",
        Example(LATEST),
    ]
    why: Annotated[_Why, "reason, stored with the change", Example("a copy is not needed")]


class RelayYield(Given):
    to: Annotated[
        str,
        Kind(wire.TEXT),
        "the feed that continues: https://HOST/feeds/NAME",
        Example("https://feed.example.com/"),
    ]


class RelayPromotion(Given):
    why: Annotated[_Why, Example("the Region is lost")] | None = None


class PasswordRequest(Given, name="RelayPassword"):
    password: Annotated[
        str,
        Kind(
            {"type": "string", "maxLength": limits.PASSWORD_BYTES_MAX}, _parse_password, shown=False
        ),
        Example("correct horse"),
    ]


# Responses.


class PasswordState(Fields, name="RelayPasswordSet"):
    feed: Annotated[str, Example(wire.EXAMPLE_FEED)]
    password: Annotated[str, wire.one_of("set", "none")]


class LogEnd(Fields, name=""):
    page: int
    cursor: EntryId
    time: Time


class CopyProgress(Fields, name=""):
    buckets_done: int
    buckets: int
    behind_page: int | None
    empty: bool


class ClusterMember(Fields, name=""):
    address: str
    feed: str
    role: str
    page: int
    heard_ms_ago: int
    gone: bool


class CopyReport(Fields, name=""):
    """The fields of a chained feed only."""

    condition: Annotated[str, Example("running")]
    term: int
    transitions: int
    upstream: Annotated[str, Example("https://feed.example.com/feeds/orders")]
    master: Annotated[str, Example("https://feed.example.com/feeds/orders")]
    via: list[str]
    cursor: Annotated[str, Example(wire.EXAMPLE_END)]
    page: Annotated[int, Example(42)]
    low_watermark: Annotated[int, Example(1)]
    pages: Annotated[int, Example(42)]
    operations: Annotated[int, Example(100)]
    filtered: int
    repeated: int
    lag_pages: int | None
    lag_ms: int | None
    last_page_ms_ago: int | None
    upstream_read_ms_ago: int | None
    master_read_ms_ago: int | None
    compared_page: int
    compared_ms_ago: int | None
    buckets_mended: int
    failures: int
    next_attempt: Time | None
    error: str
    why: str
    copy: CopyProgress | None
    members: list[ClusterMember] | None
    successor: str


class RelayReport(CopyReport, name="Relay", is_partial=True):
    feed: Annotated[str, Example(wire.EXAMPLE_FEED)]
    source: Annotated[str, Example("https://feed.example.com/feeds/orders")]
    role: Annotated[str, Example("leader")]
    status: Annotated[str, Example("running")]
    floor: Annotated[int, Example(1)]
    head: Annotated[int, Example(42)]
    min: LogEnd | None
    max: LogEnd | None


class RelayList(Fields, name="Relays"):
    relays: list[RelayReport]


def _action(
    name: str, errors: tuple[type[Rejected], ...] = _ERRORS
) -> Callable[[wire.Method], wire.Method]:
    return wire.post(f"{_RELAY}/{name}", ADMIN, "16.11", is_action=True, errors=errors)


@dataclass(frozen=True)
class ReplicaRouter(wire.Routes, function="supervise", error=InvalidRelay):
    """The endpoint of the routes of chained feeds."""

    control: RelayControl
    upstreams: RelayPasswords
    guard: Guard

    @wire.get("/relays", READ_ALL, "16.11")
    def list_relays(self, call: Call) -> RelayList:
        """Return all chained feeds.

        The list has the feeds that the credential may read, and local ones too.
        """
        credential = call.credential
        relays: list[RelayReport] = []
        refused: set[int] = set()
        wrong: set[str] = set()  # the owners of passwords that were compared: a guess counts once
        for feed in self.guard.feed_names.all_keys():
            scope = feed if self.guard.knows(credential) else self.guard.scope(feed)
            try:
                if scope not in wrong:
                    if not call.operator:
                        READ_ALL.admit(self.guard, feed, credential)
                    relays.append(RelayReport(**self.control.reporter.summary(feed)))
            except Rejected as error:
                refused.add(error.status)
                wrong.add(scope)
        if refused and not relays:
            # The error names no feed, because the credential may see none.
            if _FORBIDDEN in refused:
                raise OutsideKey("permits to read no whole feed of this host")
            self.guard.check_host(Role.READ, credential)
            raise WrongPassword("must be a password or a key of a feed", field="password")
        return RelayList(relays=relays)

    @wire.get(_RELAY, READ_ALL, "16.11")
    def get_relay(self, call: Call) -> RelayReport:
        """Return the status of a chained feed."""
        return RelayReport(**self.control.reporter.document(call.feed))

    @wire.put(
        f"{_RELAY}/password", ADMIN, "16.11", errors=(InvalidRelay, InvalidSetting, NotChained)
    )
    def set_relay_password(self, call: Call, body: PasswordRequest) -> PasswordState:
        """Set the password for the upstream.

        An empty password is not sent.
        """
        self._check_chained(call)
        self.upstreams.keep(call.feed, body.password)
        return PasswordState(feed=call.request.feed, password="set" if body.password else "none")

    @_action("pause")
    def pause_relay(self, call: Call, body: wire.Nothing) -> RelayReport:
        """Stop copying."""
        return self._act(call, Action.PAUSE, body)

    @_action("resume")
    def resume_relay(self, call: Call, body: wire.Nothing) -> RelayReport:
        """Continue to copy."""
        return self._act(call, Action.RESUME, body)

    @_action("shutdown")
    def shut_down_relay(self, call: Call, body: wire.Nothing) -> RelayReport:
        """Stop copying, release the lease."""
        return self._act(call, Action.SHUTDOWN, body)

    @_action("start")
    def start_relay(self, call: Call, body: wire.Nothing) -> RelayReport:
        """Copy again, from the checkpoint."""
        return self._act(call, Action.START, body)

    @_action("reset")
    def reset_relay(self, call: Call, body: RelayReset) -> RelayReport:
        """Copy again, from another position."""
        return self._act(call, Action.RESET, body)

    @_action("yield")
    def yield_feed(self, call: Call, body: RelayYield) -> RelayReport:
        """Refuse producers, because another feed continues the log."""
        return self._act(call, Action.YIELD, body)

    @_action("promote", (*_ERRORS, IncompleteCopy))
    def promote_relay(self, call: Call, body: RelayPromotion) -> RelayReport:
        """Accept producers from now on."""
        return self._act(call, Action.PROMOTE, body)

    def admit(self, found: Declared, call: Call) -> Allowed:
        if "feed" not in call.request.parameters:
            return ALL  # `list_relays` checks the credential for each feed
        allowed = wire.Routes.admit(self, found, call)
        if found.method == "PUT":
            self._check_chained(call)
        return allowed

    def _check_chained(self, call: Call) -> None:
        if call.feed not in self.control.reporter.sources:
            rule = "is not chained: it has no upstream"
            raise NotChained(rule, field="feed", value=call.request.feed)

    def _act(self, call: Call, action: Action, body: Given) -> RelayReport:
        return RelayReport(**self.control.act(call.feed, action, body.sent))
