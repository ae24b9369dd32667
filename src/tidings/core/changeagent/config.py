"""
The configuration of a feed as changeagent's operators know it: purge and webhooks.

Time limits of a cluster are taken, checked, kept and told, and mean nothing here: there is no
election. What is stored is JSON; YAML is a matter of the edge.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core.changeagent import go_durations
from tidings.core.changeagent.documents import CONFIGURATION
from tidings.core.changeagent.webhooks import (
    Hook,
    as_document,
    hooks_from,
    redacted,
    with_stored,
)
from tidings.core.errors import InvalidSetting
from tidings.core.model.feeds import Retention

if TYPE_CHECKING:
    from tidings.core.changeagent.stores import OperatorDocuments

_S = 1_000_000_000
_MS = 1_000_000
_HEARTBEAT_MIN = 100 * _MS
_DURATIONS = ("minPurgeDuration", "electionTimeout", "heartbeatTimeout")
_KEYS = {"minPurgeRecords", *_DURATIONS, "webHooks"}
_RECORDS_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Configuration:
    """Durations are nanoseconds."""

    purge_records: int = 0
    purge_ns: int = 0
    election_ns: int = 10 * _S
    heartbeat_ns: int = 2 * _S
    hooks: tuple[Hook, ...] = ()

    @property
    def purge(self) -> Retention | None:
        """What may be purged: both of it must be set."""
        if not (self.purge_records and self.purge_ns):
            return None
        return Retention(age_ms=-(-self.purge_ns // _MS), records_min=self.purge_records)

    def document(self) -> dict[str, object]:
        """Every key, as it is stored."""
        return {
            "minPurgeRecords": self.purge_records,
            "minPurgeDuration": go_durations.written(self.purge_ns),
            "electionTimeout": go_durations.written(self.election_ns),
            "heartbeatTimeout": go_durations.written(self.heartbeat_ns),
            "webHooks": as_document(self.hooks),
        }

    def shown(self) -> dict[str, object]:
        """Return the document without the credentials in headers of webhooks."""
        return replace(self, hooks=redacted(self.hooks)).document()


def replaced(standing: Configuration, document: object) -> Configuration:
    """
    What *document* makes of *standing*: durations that it leaves out stay, all else is replaced.

    Raises:
        InvalidSetting: the message is changeagent's where it had one.
    """
    given = {} if document is None else document
    if not isinstance(given, dict):
        raise InvalidSetting("the configuration must be a mapping")
    unknown = sorted(str(key) for key in given if key not in _KEYS)
    if unknown:
        raise InvalidSetting(f"Unknown key: {', '.join(unknown)}")
    before = dict(
        zip(
            _DURATIONS,
            (standing.purge_ns, standing.election_ns, standing.heartbeat_ns),
            strict=True,
        )
    )
    purge, election, heartbeat = (_duration(given, name, before[name]) for name in _DURATIONS)
    hooks = with_stored(hooks_from(given.get("webHooks")), standing.hooks)
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
        shown = go_durations.written(configuration.election_ns), go_durations.written(least)
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
        raise InvalidSetting("minPurgeRecords must be a whole number of at least 0")
    return records


def _duration(given: dict[str, object], name: str, standing: int) -> int:
    duration = given.get(name)
    if duration is None:
        return standing
    try:
        return go_durations.parse(str(duration))
    except ValueError as error:
        raise InvalidSetting(f"Error parsing {name}: {error}") from None


def stored(text: str) -> Configuration:
    """The configuration in a stored document; the defaults where there is none."""
    return replaced(Configuration(), json.loads(text)) if text else Configuration()


def encoded(configuration: Configuration) -> str:
    """As it is stored."""
    return json.dumps(configuration.document(), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Purges:
    """What the trimmer asks for each feed."""

    operator_documents: OperatorDocuments

    def __call__(self, feed: str) -> Retention | None:
        return stored(self.operator_documents.operator_document(feed, CONFIGURATION).text).purge
