"""
The roster: every connection, looked at in rounds, a part with each sweep.

What a sweep reads is bounded, so it ends in time and costs no more however many are connected; a
round takes more sweeps instead. Where one sweep comes to the end, nothing is stored.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.websocket.connections import Connection


@dataclass(frozen=True, slots=True)
class Portion:
    """Some *connections*; the next portion begins behind *place*, which is empty at the end."""

    connections: Sequence[Connection]
    place: str


@dataclass(frozen=True, slots=True)
class Round:
    """
    How far a round is: the sweeps before looked at everybody up to *place*.

    *place* is empty at the beginning; only the store knows what it says. *counted* are those with a
    subscription so far, by feed; *previous* are those of the round before, where it took some
    sweeps.
    """

    place: str = ""
    counted: Mapping[str, int] = field(default_factory=dict)
    previous: Mapping[str, int] = field(default_factory=dict)

    def behind(self, portion: Portion) -> Round:
        """This round, once *portion* is done; at the end without a place."""
        subscribed = Counter(each.feed for each in portion.connections if each.feed)
        return replace(self, place=portion.place, counted=Counter(self.counted) + subscribed)

    def clients(self) -> Mapping[str, int]:
        """How many there are by feed: in the middle no fewer than the round before had."""
        return Counter(self.counted) | Counter(self.previous) if self.place else self.counted

    def next(self, standing: Round) -> Round:
        """What the next sweep begins with, if this one began with *standing*."""
        if self.place:
            return self
        return Round(previous=self.counted) if standing.place else Round()
