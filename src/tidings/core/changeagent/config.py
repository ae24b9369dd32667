"""The configuration of a feed as changeagent's operators know it: purge, webhooks and health.

The time limits of a cluster (`electionTimeout`, `heartbeatTimeout`) are checked, stored and
returned, but have no effect, because Tidings has no cluster as in changeagent. Durations in a
document have Go's format. Documents are stored as JSON; the package `http` converts YAML.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from tidings.core.auth.guard import ALL, Role
from tidings.core.changeagent.documents import CONFIGURATION, DEPLOYMENT, HEALTH
from tidings.core.changeagent.webhooks import (
    Hook,
    as_document,
    hooks_from,
    redact_headers,
    with_stored,
)
from tidings.core.errors import InvalidSetting, OutsideKey, Unavailable
from tidings.core.model.feeds import DEFAULT_FEED, HOST, Retention
from tidings.core.records import until_saved

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.auth.guard import Allowed, Credential, Need
    from tidings.core.changeagent.documents import OperatorDocuments
    from tidings.core.changeagent.users import UserAuthenticator


_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_CHARS_MAX = 64  # maximum length of the text of a duration; durations in use are much shorter
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_DURATION = re.compile(rf"[+-]?(?:{_PART.pattern})+", re.ASCII)
_NS_MAX = 2**63 - 1


def parse_duration(text: str) -> int:
    """Parse a duration of Go, such as `300ms`, `1.5h` or `2h45m`, into nanoseconds.

    Raises:
        ValueError: *text* is not a duration; the message is Go's.
    """
    if text in ("0", "+0", "-0"):
        return 0
    if len(text) > _CHARS_MAX or not _DURATION.fullmatch(text):
        raise ValueError(f"time: invalid duration {_quote(text)}")
    parts = _PART.findall(text)
    total = sum(int(Decimal(number) * _UNITS[unit]) for number, unit in parts)
    if total > _NS_MAX:
        raise ValueError(f"time: invalid duration {_quote(text)}")
    return -total if text.startswith("-") else total


def format_duration(ns: int) -> str:
    """Return *ns* in Go's format."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    for unit, size in (("ns", 1), ("\u00b5s", 1_000), ("ms", 1_000_000)):
        if ns < 1_000 * size:
            return f"{sign}{_plain(Decimal(ns) / size)}{unit}"
    minutes, rest = divmod(ns, _UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_plain(Decimal(rest) / _UNITS['s'])}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _quote(text: str) -> str:
    return f'"{text[:_CHARS_MAX]}"'


_S = 1_000_000_000
_MS = 1_000_000
_HEARTBEAT_MIN = 100 * _MS
_DURATIONS = ("minPurgeDuration", "electionTimeout", "heartbeatTimeout")
_KEYS = {"minPurgeRecords", *_DURATIONS, "webHooks"}
_RECORDS_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a feed. Durations are nanoseconds."""

    purge_records: int = 0
    purge_ns: int = 0
    election_ns: int = 10 * _S
    heartbeat_ns: int = 2 * _S
    hooks: tuple[Hook, ...] = ()

    @property
    def purge(self) -> Retention | None:
        """Return the rule for purging if both of its limits are set, else None."""
        if not (self.purge_records and self.purge_ns):
            return None
        return Retention(age_ms=-(-self.purge_ns // _MS), records_min=self.purge_records)

    def document(self) -> dict[str, object]:
        """Return the document to store, with every key."""
        return {
            "minPurgeRecords": self.purge_records,
            "minPurgeDuration": format_duration(self.purge_ns),
            "electionTimeout": format_duration(self.election_ns),
            "heartbeatTimeout": format_duration(self.heartbeat_ns),
            "webHooks": as_document(self.hooks),
        }

    def redacted_json(self) -> dict[str, object]:
        """Return the document, with the credentials in headers of webhooks redacted."""
        return replace(self, hooks=redact_headers(self.hooks)).document()


def replace_configuration(current: Configuration, document: object) -> Configuration:
    """Return the configuration in *document*. Missing durations are taken from *current*.

    Raises:
        InvalidSetting: *document* is invalid. The error has changeagent's message, if there is one.
    """
    given = {} if document is None else document
    if not isinstance(given, dict):
        raise InvalidSetting("the configuration must be a mapping")
    unknown = sorted(str(key) for key in given if key not in _KEYS)
    if unknown:
        raise InvalidSetting(f"Unknown key: {', '.join(unknown)}")
    before = dict(
        zip(_DURATIONS, (current.purge_ns, current.election_ns, current.heartbeat_ns), strict=True)
    )
    purge, election, heartbeat = (_duration(given, name, before[name]) for name in _DURATIONS)
    hooks = with_stored(hooks_from(given.get("webHooks")), current.hooks)
    configuration = Configuration(_records(given), purge, election, heartbeat, hooks)
    _check(configuration)
    return configuration


def _check(configuration: Configuration) -> None:
    if configuration.purge_ns < 0:
        raise InvalidSetting("minPurgeDuration must not be negative")
    if configuration.heartbeat_ns < _HEARTBEAT_MIN:
        raise InvalidSetting("Heartbeat timeout must be at least 100ms")
    least = 2 * configuration.heartbeat_ns
    if configuration.election_ns < least:
        shown = format_duration(configuration.election_ns), format_duration(least)
        raise InvalidSetting(f"Election timeout {shown[0]} must be at least {shown[1]}")


def _records(given: dict[str, object]) -> int:
    records = given.get("minPurgeRecords")
    if records is None:
        return 0
    if (
        not isinstance(records, int)
        or isinstance(records, bool)
        or not 0 <= records <= _RECORDS_MAX
    ):
        raise InvalidSetting(f"minPurgeRecords must be a whole number from 0 to {_RECORDS_MAX}")
    return records


def _duration(given: dict[str, object], name: str, current: int) -> int:
    duration = given.get(name)
    if duration is None:
        return current
    try:
        return parse_duration(str(duration))
    except ValueError as error:
        raise InvalidSetting(f"Error parsing {name}: {error}") from None


def decode_configuration(text: str) -> Configuration:
    """Parse a stored document; return the defaults for an empty one."""
    return replace_configuration(Configuration(), json.loads(text)) if text else Configuration()


def encode_configuration(configuration: Configuration) -> str:
    """Return the configuration as it is stored."""
    return json.dumps(configuration.document(), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Purges:
    """The purge settings of feeds, for the retention service."""

    operator_documents: OperatorDocuments

    def __call__(self, feed: str) -> Retention | None:
        return decode_configuration(
            self.operator_documents.operator_document(feed, CONFIGURATION).text
        ).purge


DOWN = "down"


@dataclass(frozen=True, slots=True)
class Administrator:
    """The service that reads and changes feeds' configuration and the deployment's health."""

    operator_documents: OperatorDocuments
    gate: UserAuthenticator

    def check_health(self, need: Need, given: Credential | None) -> Allowed:
        """Check that *given* may take the host out of service, and so all of its feeds.

        The permission *need* on the default feed is enough if the host has no other feed, or if it
        is open.

        Raises:
            NoPasswordSet, WrongUser, WrongPassword, WrongKey, OutsideKey: see
                `UserAuthenticator.check`.
        """
        guard = self.gate.guard
        is_shared = not guard.open and any(
            key != DEFAULT_FEED for key in guard.feed_names.all_keys()
        )
        if not (is_shared or guard.profiles.profile(HOST).is_protected):
            return self.gate.check(guard.feed_names.key(DEFAULT_FEED), need, given)
        if guard.check_host(Role.ADMIN, given).feed_prefixes:
            raise OutsideKey("permits only some feeds, and this request concerns the host")
        return ALL

    def is_up(self) -> bool:
        """Return True if load balancers should send traffic, or if the store does not answer."""
        try:
            return self.operator_documents.operator_document(DEPLOYMENT, HEALTH).text != DOWN
        except Unavailable:
            return True

    def mark(self, *, up: bool) -> None:
        """Set the health that load balancers get. The deployment serves requests in either case."""
        self._write(DEPLOYMENT, HEALTH, lambda _: "" if up else DOWN)

    def configuration(self, feed: str) -> Configuration:
        return decode_configuration(
            self.operator_documents.operator_document(feed, CONFIGURATION).text
        )

    def configure(self, feed: str, document: object) -> Configuration:
        """Replace the configuration by *document* and return the new one.

        Raises:
            InvalidSetting: *document* is invalid; nothing was changed.
        """

        def change(current: str) -> str:
            configuration = replace_configuration(decode_configuration(current), document)
            return encode_configuration(configuration)

        return decode_configuration(self._write(feed, CONFIGURATION, change))

    def _write(self, feed: str, name: str, change: Callable[[str], str]) -> str:
        """Apply *change* to the document; retry if another process changed it concurrently."""

        def attempt() -> str | None:
            current = self.operator_documents.operator_document(feed, name)
            made = replace(current, text=change(current.text))
            return made.text if self.operator_documents.write(feed, name, made) else None

        return until_saved(attempt, f"the document {feed}/{name}")
