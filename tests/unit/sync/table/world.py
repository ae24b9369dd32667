"""A small world in which a table changes while a feed is compared with it.

There is one thread and no real time: whenever a sync has an effect on the table or the feed, some
time passes, the owner of the table writes and posts what is due, and the state follows the log.
A sync may be killed before or after each of its effects.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from tests.fakes import MemoryFollowers, MemoryLog, MemoryState, MemoryTombstones
from tests.fakes.runtime import runtime_of
from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.log.reader import Filler, Reader
from tidings.core.model import timestamps
from tidings.core.model.feeds import STATE, FixedFeeds
from tidings.core.model.operations import line_from
from tidings.core.model.pages import Page, encode
from tidings.core.state.rows import project
from tidings.core.sync.apply import Corrector, Outcome, RowLookup
from tidings.core.sync.dumps import dump_line
from tidings.core.sync.live import Compare
from tidings.sync.cli import Phases
from tidings.sync.postgres import Chunk, ChunkEnd
from tidings.sync.table import IN_MEMORY, Progress, TableSync, TableSyncOptions, Time

FEED, TYPE = "main", "video"
BEGAN_MS = 1_763_000_000_000
PAGE_MS, TOMBSTONE_MS = 30 * 24 * 3600 * 1000, 60 * 24 * 3600 * 1000
LAG_MS = 500  # at most, from a commit to its post
CORRECTED = "sync"


class Killed(BaseException):
    """The process of the sync is gone."""


class Broken(Exception):
    """The feed says what it must not."""


@dataclass(frozen=True)
class Written:
    """A committed write of the owner to an object; *number* grows with each write."""

    id: str
    number: int
    there: bool

    def operation(self) -> dict[str, Any]:
        moment = timestamps.from_ms(BEGAN_MS - 10**9 + self.number * 1_000)
        return {"type": TYPE, "id": self.id, "timestamp": moment, "data": self.number}


@dataclass
class World:
    """*lost* is the share of writes that are never posted, *busy* that of effects with a write."""

    random: Random
    ids: Sequence[str]
    lost: float = 0.3
    busy: float = 0.3
    failing: float = 0.0
    lag_ms: int = LAG_MS
    hot: Sequence[str] = ()
    now_ms: int = BEGAN_MS
    table: dict[str, Written] = field(default_factory=dict)
    history: defaultdict[str, list[Written]] = field(default_factory=lambda: defaultdict(list))
    outbox: list[tuple[int, Written]] = field(default_factory=list)
    kill_in: int | None = None
    effects: int = 0
    numbers: int = 0
    reads: list[tuple[int, int]] = field(default_factory=list)  # time and rows of each read

    def __post_init__(self) -> None:
        self.log, self.state, self.followers = MemoryLog(), MemoryState(), MemoryFollowers()
        lease = self.followers.take(FEED, STATE, owner="s", now_ms=0)
        assert lease is not None
        self._lease = lease

    # The actions of the owner.

    def write(self, id: str) -> None:
        """Insert, change or delete it, and post that later, in the order of commits, or never."""
        self.numbers += 1
        there = id not in self.table or self.random.random() < 0.7
        written = Written(id, self.numbers, there)
        self.history[id].append(written)
        self.table.pop(id, None)
        if there:
            self.table[id] = written
        if self.random.random() >= self.lost:
            last_ms = self.outbox[-1][0] if self.outbox else 0
            lag_ms = self.random.choice([0, self.random.randint(0, self.lag_ms)])
            due_ms = self.now_ms + lag_ms
            self.outbox.append((min(max(due_ms, last_ms), self.now_ms + self.lag_ms), written))

    def post(self) -> None:
        while self.outbox and self.outbox[0][0] <= self.now_ms:
            _, written = self.outbox.pop(0)
            event = "update" if written.there else "delete"
            self.append(line_from(written.operation() | {"event": event}, now_ms=0), "owner")

    def append(self, line: str, who: str) -> None:
        number = self.log.take(FEED)
        expires_ms = self.now_ms + PAGE_MS
        self.log.put(FEED, Page(number, encode([line]), who, self.now_ms, expires_ms))

    def follow(self) -> None:
        run = self.reader().read(FEED, self._lease.checkpoint)
        if run.pages:
            self.state.write(FEED, project(run.pages, tombstone_ms=TOMBSTONE_MS))
            last = run.pages[-1].number
            self._lease = self.followers.save(self._lease, last, now_ms=self.now_ms)

    # The actions of the feed, and the ports of a sync.

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.post()
        if self.random.random() < 0.5:
            self.follow()

    def effect(self) -> None:
        """Let time pass, let others act, and perhaps kill the sync."""
        self.effects += 1
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                raise Killed
        if self.random.random() < self.busy and self.hot:
            self.write(self.random.choice(self.hot))
        self.pass_time(self.random.randint(0, 30))

    def reader(self, log: Any = None) -> Reader:
        log = log or self.log
        return Reader(
            log=log,
            checkpoints=self.followers,
            clock=lambda: self.now_ms,
            count=lambda name, count: None,
        )

    def sync(self, path: Path = IN_MEMORY, **options: Any) -> TableSync:
        wanted: dict[str, Any] = {
            "compare": Compare.TIME,
            "grace_ms": LAG_MS,
            "chunk": 3,
            "delete_share_max": 1.0,
        }
        progress = Progress(path, {"table": "videos"})
        time = Time(lambda: self.now_ms, lambda: self.now_ms, self.pass_time)
        return TableSync(
            MemoryFeed(self),
            MemoryTable(self),
            TableSyncOptions(**wanted | options),
            progress,
            time,
            Phases(silent=True),
        )

    def calm(self) -> None:
        """End all writes, post everything, and let the state follow."""
        self.busy, self.failing, self.kill_in = 0.0, 0.0, None
        self.now_ms += self.lag_ms
        self.post()
        self.follow()

    # The conditions to check.

    def objects(self) -> dict[str, int]:
        """Return the number of each living object in the state."""
        rows = [row for bucket in range(limits.BUCKETS) for row in self.state.read(FEED, bucket)]
        return {
            each["id"]: each["data"]
            for each in (json.loads(row.line) for row in rows if not row.deleted)
        }

    def rows(self) -> dict[str, int]:
        return {id: written.number for id, written in self.table.items()}

    def check(self, *, prompt: bool = True) -> None:
        """Check that corrections repeat nothing of the log, and are never older than the log. With
        *prompt*, check that the owner posts nothing older after a correction either.

        Raises:
            Broken: a correction violates a condition.
        """
        said: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        pages = self.log._feeds[FEED].pages
        for page in (pages[number] for number in sorted(pages)):
            for line in page.lines:
                fields = json.loads(line)
                who = "owner" if page.append_id == "owner" else CORRECTED
                number = self._number(fields, who, said[fields["id"]])
                said[fields["id"]].append((who, number))
        for id, entries in said.items():
            self._check_one(id, entries, prompt=prompt)

    def _number(self, fields: dict[str, Any], who: str, before: list[tuple[str, int]]) -> int:
        """Return the number of a line's write; for a delete by the sync, that of the first later
        delete.
        """
        if who == "owner" or fields["event"] != "delete":
            return int(fields["data"])
        last = before[-1][1]
        later = [each.number for each in self.history[fields["id"]] if not each.there]
        gone = [number for number in later if number > last]
        if not gone:
            raise Broken(f"{fields['id']} was deleted behind {before}, and never was")
        return gone[0]

    def _check_one(self, id: str, entries: list[tuple[str, int]], *, prompt: bool) -> None:
        for at, (who, number) in enumerate(entries):
            if who != CORRECTED:
                continue
            before = max((told for _, told in entries[:at]), default=0)
            if number <= before:
                raise Broken(f"{id}: a correction said {number} behind {entries[:at]}")
            after = [told for whose, told in entries[at + 1 :] if whose == "owner"]
            if prompt and any(told <= number for told in after):
                raise Broken(f"{id}: the owner posts {after} after a correction to {number}")


class _Effects:
    """Wraps *target*; each method in *effects* counts as an effect."""

    def __init__(self, world: World, target: object, *effects: str) -> None:
        self._world, self._target, self._effects = world, target, effects

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        return self._around(method) if name in self._effects else method

    def _around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def effect(*args: Any, **named: Any) -> Any:
            self._world.effect()
            result = method(*args, **named)
            self._world.effect()
            return result

        return effect


@dataclass
class MemoryTable:
    """Implements `LiveTable`."""

    world: World
    type: str = TYPE

    @property
    def estimate(self) -> int:
        return len(self.world.table)

    def chunk(self, after: ChunkEnd | None, most: int) -> Chunk | None:
        self.world.effect()
        ids = sorted(id for id in self.world.table if after is None or [id] > after)[:most]
        rows = self._lines(ids)
        self.world.reads.append((self.world.now_ms, len(ids)))
        self.world.effect()
        return Chunk(rows, [ids[-1]]) if ids else None

    def find(self, ids: Sequence[str]) -> dict[str, str]:
        self.world.effect()
        rows = self._lines(ids)
        self.world.reads.append((self.world.now_ms, len(ids)))
        self.world.effect()
        return rows

    def _lines(self, ids: Iterable[str]) -> dict[str, str]:
        table = self.world.table
        return {id: dump_line(table[id].operation()) for id in ids if id in table}


@dataclass
class MemoryFeed:
    """Implements `Feed`, as far as a sync with a table asks."""

    world: World
    feed: str = FEED

    def check(self) -> None:
        """Allow every request."""

    def checkpoint(self) -> int:
        return self.world.followers.checkpoints(FEED).get(STATE, 0)

    def end(self) -> int:
        return self.world.reader().frontier(FEED, self.checkpoint()).page

    def watermark(self, as_of: str) -> NoReturn:
        raise NotImplementedError

    def source(self) -> NoReturn:
        raise NotImplementedError

    def rows(self) -> Any:
        return _Effects(self.world, self.world.state, "find").read

    def corrector(self) -> Corrections:
        return Corrections(self.world)


class Corrections:
    """Implements `Corrections` as a feed over HTTP does: an answer may be lost."""

    made: type[Corrector] = Corrector

    def __init__(self, world: World) -> None:
        self._world = world
        log = _Effects(world, world.log, "take", "put", "read")
        ids = iter(f"{CORRECTED}.{world.effects}.{number}" for number in range(10**6))
        self._corrector = self.made(
            states=_Effects(world, world.state, "find"),
            filler=Filler(world.reader(log), PAGE_MS),
            runtime=runtime_of(
                lambda: world.now_ms, await_writer=world.pass_time, new_id=lambda: next(ids)
            ),
            feed_names=FixedFeeds(frozenset({FEED})),
            tombstones=MemoryTombstones(),
        )

    def look(self, feed: str, keys: Sequence[str]) -> RowLookup:
        return self._corrector.look(feed, keys)

    def apply(self, feed: str, through: int, part: Iterable[bytes], behind: int = 0) -> Outcome:
        outcome = self._corrector.apply(feed, through, part, behind)
        if self._world.random.random() < self._world.failing:
            raise Unavailable("nobody knows")
        return outcome
