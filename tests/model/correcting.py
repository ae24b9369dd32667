"""The small world of corrections: appliers of one plan, a producer, and the follower `state`.

The follower's clock is an hour ahead, as in `appending`: every hole it sees is overdue.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.fakes import MemoryClaims, MemoryFollowers, MemoryLog, MemoryState, MemoryTombstones
from tests.fakes.runtime import runtime_of
from tests.model.appending import AHEAD_MS, FEED, NOW_MS, PAGE_MS
from tests.model.explorer import Actor, Broken
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import STATE
from tidings.core.log.append import Appender
from tidings.core.log.reader import Filler, Reader
from tidings.core.model.feeds import FixedFeeds
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.core.state.rows import project
from tidings.core.sync import corrections
from tidings.core.sync.apply import Corrector, Outcome
from tidings.core.sync.corrections import Position, correction

_OBJECTS = ("a", "b")


@cache
def line(name: str, says: str) -> str:
    raw = {"event": "update", "type": "t", "id": name, "data": says}
    return line_from(raw | {"timestamp": "2026-11-20T17:19:10Z"}, now_ms=0)


PLANNED = [
    correction(line(name, "corrected"), Position(1, slot)) for slot, name in enumerate(_OBJECTS)
]
PART = [corrections.encode(each).encode() for each in PLANNED]


@dataclass(frozen=True)
class Scenario:
    """*posts* are the objects of the producer's operations; *rounds* is how often the follower
    looks."""

    posts: tuple[str, ...]
    appliers: int
    rounds: int
    corrector: type[Corrector] = Corrector

    def build(self) -> CorrectingWorld:
        return CorrectingWorld(self)


class CorrectingWorld:
    """The plan was made when page 1 was all there was."""

    def __init__(self, scenario: Scenario) -> None:
        self.log, self.state = MemoryLog(), MemoryState()
        self.followers = MemoryFollowers()
        first = Page(self.log.take(FEED), encode([line(n, "old") for n in _OBJECTS]), "p", NOW_MS)
        self.log.put(FEED, first)
        self.state.write(FEED, project([first], tombstone_ms=0))
        lease = self.followers.take(FEED, STATE, owner="s", now_ms=NOW_MS)
        assert lease is not None
        self.lease = self.followers.save(lease, 1, now_ms=NOW_MS)
        self.outcomes: dict[str, Outcome] = {}
        self.actors = [
            Actor(f"x{at}", self._applier(scenario, f"x{at}"), may_crash=True)
            for at in range(scenario.appliers)
        ]
        self.actors.append(Actor("w", self._producer(scenario), may_crash=True))
        self.actors.append(Actor("s", self._follower(scenario), may_crash=False))

    def stores(self) -> object:
        feed = self.log._feeds[FEED]
        return feed.head, feed.pages, self.state._buckets, self.followers.checkpoints(FEED)

    def _log(self, actor: Actor) -> Any:
        return actor.through(self.log, "take", "put", "read")

    def _applier(self, scenario: Scenario, name: str) -> Callable[[Actor], None]:
        def body(actor: Actor) -> None:
            log = self._log(actor)
            followers = actor.through(self.followers, "checkpoints")
            made = scenario.corrector(
                states=actor.through(self.state, "find"),
                filler=Filler(
                    Reader(log=log, checkpoints=followers, clock=lambda: NOW_MS, count=_ignore),
                    PAGE_MS,
                ),
                runtime=runtime_of(lambda: NOW_MS, new_id=lambda: name),
                feed_names=FixedFeeds(frozenset({FEED})),
                tombstones=MemoryTombstones(),
            )
            with suppress(Unavailable):
                self.outcomes[name] = made.apply(FEED, 1, PART)

        return body

    def _producer(self, scenario: Scenario) -> Callable[[Actor], None]:
        def body(actor: Actor) -> None:
            ids = iter(f"w.{at}" for at in range(100))
            appender = Appender(
                log=self._log(actor),
                claims=MemoryClaims(),
                runtime=runtime_of(lambda: NOW_MS, new_id=lambda: next(ids), page_ms=PAGE_MS),
            )
            with suppress(Unavailable):
                for name in scenario.posts:
                    appender.append(FEED, [line(name, "posted")])

        return body

    def _follower(self, scenario: Scenario) -> Callable[[Actor], None]:
        def body(actor: Actor) -> None:
            log, state = self._log(actor), actor.through(self.state, "write")
            followers = actor.through(self.followers, "save")
            reader = Reader(
                log=log, checkpoints=self.followers, clock=lambda: NOW_MS + AHEAD_MS, count=_ignore
            )
            filler = Filler(reader, PAGE_MS)
            lease = self.lease
            for _ in range(scenario.rounds):
                run = reader.read(FEED, lease.checkpoint)
                if run.pages:
                    state.write(FEED, project(run.pages, tombstone_ms=0))
                    lease = followers.save(lease, run.pages[-1].number, now_ms=NOW_MS)
                elif run.waiting:
                    filler.close_hole(FEED, lease.checkpoint)

        return body

    def check(self) -> None:
        """Check that a correction directly follows its planned predecessor, or is missing."""
        for name in _OBJECTS:
            said = self._said(name)
            if said.count("corrected") > 1:
                raise Broken(f"{name} was corrected twice: {said}")
            if "corrected" in said and said.index("corrected") != 1:
                raise Broken(f"an operation on {name} was overwritten: {said}")
        for name, found in self.outcomes.items():
            self._check_outcome(name, found)

    def _said(self, name: str) -> list[str]:
        """Return the log's operations of an object, in order."""
        pages = self.log._feeds[FEED].pages
        told = (json.loads(each) for number in sorted(pages) for each in pages[number].lines)
        return [each["data"] for each in told if each["id"] == name]

    def _check_outcome(self, name: str, found: Outcome) -> None:
        """Check the report; an applier knows all operations below its number."""
        if found.applied + found.moved + found.done != len(PLANNED) or not found.complete:
            raise Broken(f"{name} lost count: {found}")
        ours = [page for page in self.log._feeds[FEED].pages.values() if page.append_id == name]
        if sum(len(page.lines) for page in ours) != found.applied:
            raise Broken(f"{name} reports {found}, and appended {ours}")
        corrected = sum("corrected" in self._said(each) for each in _OBJECTS)
        if corrected < found.applied + found.done:
            raise Broken(f"{name} reports {found}, and {corrected} are in the log")


def _ignore(metric: str, value: int) -> None:
    """Ignore a metric: the model has no reader of metrics."""
