"""
Sources: where the operations of a feed come from.

A feed is local, so that producers post to it, or it is chained: it copies another feed page by
page, under the ids that its operations have there. A deployment may have both kinds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tidings.core.replication.selection import ALL, Selection


class FallOff(Enum):
    """What a chained feed does where the log of its upstream does not reach back to it."""

    BOOTSTRAP = "bootstrap"  # copy the upstream's state, then go on in its log
    WAIT = "wait"  # for an operator
    LATEST = "latest"  # forget everything, go on with the upstream's next page


class Role(Enum):
    """Who reads the master: a leader does, a follower reads a leader."""

    LEADER = "leader"
    FOLLOWER = "follower"
    ELECTED = "elected"  # one or the other, as the members of the cluster agree


@dataclass(frozen=True, slots=True)
class Source:
    """
    Where a chained feed comes from.

    *url* is the feed's address at the master, *leader* the one a `follower` reads instead, and
    *address* the one others read this feed at. Members of *cluster* elect *leaders* among them.
    *restart_offset* is how many pages before its checkpoint it reads again with an empty log.
    """

    url: str
    selection: Selection = ALL
    fall_off: FallOff = FallOff.BOOTSTRAP
    restart_offset: int = 0
    role: Role = Role.LEADER
    leader: str = ""
    address: str = ""
    cluster: str = ""
    leaders: int = 1


Sources = Mapping[str, Source]  # the chained feeds by name; every other one is local
