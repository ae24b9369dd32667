"""What has to be shown for a request, as the tables of routes and messages say it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tidings.core.auth.guard import ALL, Role
from tidings.core.errors import OutsideKey

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Credential, Guard


class Bounded(Enum):
    """What who has a key that is bounded to a part of the feed is answered."""

    NARROWED = "narrowed"  # what lies within
    BY_TYPE = "by type"  # that, unless it is bounded by parents, which cannot be told apart here
    REFUSED = "refused"  # nothing: it is of the whole feed


@dataclass(frozen=True, slots=True)
class Need:
    """No *role*: nothing has to be shown."""

    role: Role | None = None
    bounded: Bounded = Bounded.NARROWED

    def admit(self, guard: Guard, feed: str, given: Credential | None) -> Allowed:
        """
        What *given* allows who asks for this on *feed*.

        Raises:
            Rejected: not this; see `Guard.check`.
        """
        if self.role is None:
            return ALL
        allowed = guard.check(feed, self.role, given, whole=self.bounded is Bounded.REFUSED)
        if self.bounded is Bounded.BY_TYPE and allowed.bound.parents is not None:
            raise OutsideKey("is bounded by parents, and this can be narrowed by types alone")
        return allowed


ANYBODY = Need()
READS = Need(Role.READ)
COPIES = Need(Role.READ, Bounded.BY_TYPE)  # of what left more would be told than may be seen
READS_ALL = Need(Role.READ, Bounded.REFUSED)
CONSUMES = Need(Role.CONSUME, Bounded.REFUSED)  # a consumer that moves is moved for everybody
POSTS = Need(Role.INGEST)
PUBLISHES = Need(Role.INGEST, Bounded.BY_TYPE)  # items name no parents
STEERS = Need(Role.ADMIN, Bounded.REFUSED)
