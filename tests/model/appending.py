"""The small worlds: writers, and a reader that fills holes, over one log.

Time is the strongest adversary: the filler's clock is an hour ahead, so that every hole is
overdue the moment it is seen. Safety must not depend on time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.fakes import MemoryClaims, MemoryFollowers, MemoryLog
from tests.fakes.runtime import runtime_of
from tests.model.explorer import Actor, Broken
from tidings.core.log.append import Appender
from tidings.core.log.reader import Filler, Reader
from tidings.core.model.pages import Page

FEED = "main"
NOW_MS, AHEAD_MS, PAGE_MS = 1_795_000_000_000, 3_600_000, 10**12
_LOG_EFFECTS = ("take", "put", "read")
_CLAIM_EFFECTS = ("find", "claim", "move")

Acknowledge = Callable[[Page], None]
Write = Callable[[Appender, str, Acknowledge], None]


def write(appender: Appender, line: str, acknowledge: Acknowledge) -> None:
    acknowledge(appender.append(FEED, [line]))


def write_once(appender: Appender, line: str, acknowledge: Acknowledge) -> None:
    acknowledge(appender.append_once(FEED, [line], key="k", fingerprint="f"))


@dataclass(frozen=True)
class Scenario:
    """*lines* are what each writer appends; *rounds* is how often the reader looks."""

    lines: Sequence[Sequence[str]]
    rounds: int
    write: Write = write
    log: type[MemoryLog] = MemoryLog
    reader: type[Reader] = Reader

    def build(self) -> AppendingWorld:
        return AppendingWorld(self)


class AppendingWorld:
    def __init__(self, scenario: Scenario) -> None:
        self.log, self.claims = scenario.log(), MemoryClaims()
        self.acknowledged: list[tuple[int, str]] = []
        self.prefix: list[str] = []  # the pages read so far
        self.actors = [
            Actor(f"w{at}", self._writer(scenario, f"w{at}", lines), may_crash=True)
            for at, lines in enumerate(scenario.lines)
        ]
        self.actors.append(Actor("r", self._reader(scenario), may_crash=False))

    def stores(self) -> object:
        feed = self.log._feeds[FEED]
        return feed.head, feed.pages, self.claims._claims

    def _writer(
        self, scenario: Scenario, name: str, lines: Sequence[str]
    ) -> Callable[[Actor], None]:
        def body(actor: Actor) -> None:
            ids = iter(f"{name}.{at}" for at in range(100))
            appender = Appender(
                log=actor.through(self.log, *_LOG_EFFECTS),
                claims=actor.through(self.claims, *_CLAIM_EFFECTS),
                runtime=runtime_of(lambda: NOW_MS, new_id=lambda: next(ids), page_ms=PAGE_MS),
            )
            for line in lines:
                scenario.write(appender, line, partial(self._acknowledge, line))

        return body

    def _acknowledge(self, line: str, page: Page) -> None:
        self.acknowledged.append((page.number, line))

    def _reader(self, scenario: Scenario) -> Callable[[Actor], None]:
        def body(actor: Actor) -> None:
            log: Any = actor.through(self.log, *_LOG_EFFECTS)
            reader = scenario.reader(
                log=log,
                checkpoints=MemoryFollowers(),
                clock=lambda: NOW_MS + AHEAD_MS,
                count=lambda *_: None,
            )
            filler = Filler(reader, PAGE_MS)
            after = 0
            for _ in range(scenario.rounds):
                run = reader.read(FEED, after)
                for page in run.pages:
                    self._check_read(page)
                    after = page.number
                if run.waiting:
                    filler.close_hole(FEED, after)

        return body

    def _check_read(self, page: Page) -> None:
        """Check that no reader sees N + 1 before N is settled."""
        settled = self.log._feeds[FEED].pages
        unsettled = [number for number in range(1, page.number) if number not in settled]
        if unsettled or page.number != len(self.prefix) + 1:
            raise Broken(f"page {page.number} was read before {unsettled or len(self.prefix) + 1}")
        self.prefix.append(str(page.body))

    def check(self) -> None:
        pages = self.log._feeds[FEED].pages
        for number, line in self.acknowledged:
            if number not in pages or pages[number].body != line:
                raise Broken(f"{line} was acknowledged at page {number}, which is not there")
        for number, body in enumerate(self.prefix, 1):
            if number not in pages or pages[number].body != body:
                raise Broken(f"page {number} was read as {body!r} and has changed")
        bodies = [page.body for page in pages.values() if page.body]
        if len(bodies) != len(set(bodies)):
            raise Broken(f"something was appended twice: {sorted(map(str, bodies))}")
        if len(set(self.acknowledged)) != len({line for _, line in self.acknowledged}):
            raise Broken(f"one request was answered with two pages: {self.acknowledged}")
