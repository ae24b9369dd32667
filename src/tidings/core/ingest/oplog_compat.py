"""How a feed answers what it refuses: in our way, or as oplog did (compatibility mode)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.errors import InvalidOperation, TidingsError, Unavailable
from tidings.core.settings.profiles import OPLOG

if TYPE_CHECKING:
    from tidings.core.settings.profiles import ProfileStore

_OPLOG_INVALID = 503  # what oplog's producers know; to most of them it means: try again


@dataclass(frozen=True, slots=True)
class CompatibilityMode:
    profiles: ProfileStore
    feeds: frozenset[str]

    def are_oplogs(self, feed: str) -> bool:
        """Whether *feed* answers as oplog did; ours where it is none, or nobody can tell."""
        if feed not in self.feeds:
            return False
        try:
            return self.profiles.profile(feed).compat == OPLOG
        except Unavailable:
            return False


def oplog_status(error: TidingsError, status: int) -> int:
    """What oplog would have said for *error*, to which we say *status*."""
    return _OPLOG_INVALID if isinstance(error, InvalidOperation) else status
