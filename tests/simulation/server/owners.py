"""Clients that create and delete a feed, and use it in between.

Each life of the feed is a generation. Nothing that was acknowledged in a generation is missing
while it lives, and nothing of it is in a later one. Readers that return with a cursor of an earlier
generation are informed. At the end, only the record is left of deleted generations.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.simulation.model import Broken
from tests.simulation.server.clients import Client, Lost, request
from tests.simulation.server.operators import on_host
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyIssuer, PresentedKey
from tidings.core.errors import FeedDeleted
from tidings.core.model.feeds import HOST, key_of
from tidings.core.model.operations import line_from

if TYPE_CHECKING:
    from tests.simulation.server.world import World
    from tidings.core.feeds.records import FeedRecord
    from tidings.server.host import Host

# The key of the host, by which owners use their feeds if the host is closed.
_KEY = PresentedKey("h" * ID_LENGTH, "s" * 32)
_LATE_S = 60  # after this time without faults, no feed is deleted
_HEADERS = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]


class FeedOwner(Client):
    """The only client that creates, uses and deletes its feed."""

    def __init__(self, world: World, name: str) -> None:
        self.feed = f"own-{name}"
        self.generation: int | None = None  # that lives; None if it is not known that one does
        self.acknowledged: dict[str, None] = {}  # markers in that generation, in order
        self.cursors: dict[int, list[int]] = {}  # ids of changes, by generation
        self.posts = self.lives = self.calm_us = 0
        super().__init__(world, name)

    def restored(self) -> None:
        """Forget everything: the server may have earlier generations again."""
        self.generation = None
        self.acknowledged.clear()
        self.cursors.clear()

    async def use(self) -> None:
        random, restores = self.world.random, self.world.restores
        await asyncio.sleep(random.uniform(0, 2))
        if self.generation is None:
            await self._create(restores)
        for _ in range(random.randint(1, 4)):
            if restores != self.world.restores:
                return
            await random.choice((self._post, self._post, self._read, self._return))(restores)
            await asyncio.sleep(random.uniform(0, 1))
        if restores == self.world.restores and random.random() < 0.6 and self._may_delete():
            await self._delete(restores)

    def _may_delete(self) -> bool:
        """Return True until some time before the end, so that the last removal can be complete."""
        now_us = self.world.machine.now_us
        if self.world.is_calm:
            self.calm_us = self.calm_us or now_us
        return not self.calm_us or now_us < self.calm_us + _LATE_S * 10**6

    async def _create(self, restores: int) -> None:
        found: list[FeedRecord] = []
        before = self.lives

        def create(host: Host) -> None:
            if self.world.key is not None:
                _add_key(host)
            found.append(host.feed_service.create(self.feed)[0])

        await on_host(self.world, create)
        if restores != self.world.restores or before != self.lives:
            return
        number = found[-1].number
        if self.cursors and number < max(self.cursors):
            raise Broken(f"{self.feed}: generation {number} follows {max(self.cursors)}")
        self.generation = number
        if number not in self.cursors:  # otherwise a deletion that was lost was not done
            self.cursors[number] = []
            self.acknowledged.clear()
            self.world.faults.saw("feed was created")

    async def _ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        path = f"/feeds/{self.feed}/{path}"
        bearer = (b"authorization", f"Bearer {_KEY.encode()}".encode())
        only = [*_HEADERS, bearer] if self.world.key is not None else [*_HEADERS]
        return await request(self.world, method, path, body, only=only)

    def _is_refused(self, status: int, answer: Any, restores: int) -> bool:
        """Return True if the server could not answer; the feed exists otherwise."""
        if restores != self.world.restores or status == 503:
            return True
        if status >= 300:
            raise Broken(f"{self.feed} exists, and {self.name} is answered {status}: {answer}")
        return False

    async def _post(self, restores: int) -> None:
        random = self.world.random
        self.posts += 1
        count = random.choice((1, 1, 3))
        markers = [f"{self.feed}.{self.generation}.{self.posts}.{at}" for at in range(count)]
        ops = [
            {"event": "update", "type": "video", "id": marker, "data": {"of": marker}}
            for marker in markers
        ]
        status, answer = await self._ask("POST", "ops", json.dumps(ops).encode())
        if not self._is_refused(status, answer, restores):
            self.acknowledged.update(dict.fromkeys(markers))
            self.world.faults.saw("feed was used")

    async def _read(self, restores: int) -> None:
        status, listing = await self._ask("GET", "changes?limit=1000")
        if self._is_refused(status, listing, restores):
            return
        self._check_listing(listing)
        if listing["next"]:
            assert self.generation is not None
            self.cursors[self.generation].append(listing["next"])

    def _check_listing(self, listing: Any) -> None:
        there = [each["data"]["data"]["of"] for each in listing["changes"]]
        for marker in there:
            if int(marker.split(".")[1]) != self.generation:
                raise Broken(f"{self.feed} has {marker}, and is generation {self.generation}")
        if listing["atEnd"] and listing["floor"] == 0:
            missing = [each for each in self.acknowledged if each not in there]
            if missing and not listing.get("lost"):
                raise Broken(f"{self.feed}: {missing} were acknowledged, and are not in the log")

    async def _return(self, restores: int) -> None:
        """Read with the cursor of an earlier generation."""
        old = [
            cursor
            for number, cursors in self.cursors.items()
            for cursor in cursors
            if self.generation is not None and number < self.generation
        ]
        if not old:
            return
        since = self.world.random.choice(old)
        status, listing = await self._ask("GET", f"changes?since={since}")
        if self._is_refused(status, listing, restores):
            return
        if not listing.get("lost"):
            raise Broken(f"{self.feed}: {since} is of an earlier generation: {listing}")
        self.world.faults.saw("old cursor was refused")

    async def _delete(self, restores: int) -> None:
        self.generation, before = None, self.generation
        self.lives += 1
        with suppress(Lost):
            await on_host(
                self.world,
                lambda host: host.feed_service.delete(self.feed, confirm=self.feed, force=True),
            )
            if restores != self.world.restores:
                return
            status, answer = await self._ask("GET", "changes")
            if restores == self.world.restores and status not in (410, 503):
                raise Broken(f"{self.feed} {before} was deleted, answered {status}: {answer}")
            self.world.faults.saw("feed was deleted")
            if before is not None:
                await self._post_late(key_of(self.feed, before), restores)
            if self.world.random.random() < 0.5:
                await asyncio.sleep(self.world.random.uniform(0, 15))

    async def _post_late(self, key: str, restores: int) -> None:
        """Append to the deleted feed, as a request does that found it before the deletion."""
        written: list[object] = []
        late = {"event": "update", "type": "video", "id": f"late-{key}"}

        def append(host: Host) -> None:
            line = line_from(late, now_ms=host.runtime.clock())
            with suppress(FeedDeleted):
                written.append(host.appender.append(key, [line]))

        await on_host(self.world, append)
        if written and restores == self.world.restores:
            raise Broken(f"{key} was deleted, and has a new page")
        self.world.faults.saw("late post was refused")

    # The end.

    def _record(self) -> FeedRecord | None:
        host = self._host
        return host.stores.feed_store.record(self.feed)

    @property
    def _host(self) -> Host:
        assert self.world.process is not None and self.world.process.host is not None
        return self.world.process.host

    def is_done(self) -> bool:
        record = self._record()
        return record is None or not record.unfinished

    def check(self) -> None:
        """Check that the removal is complete, and that nothing is left of it."""
        record = self._record()
        if record is None:
            return
        if record.unfinished:
            raise Broken(f"{self.feed}: the removal is not complete: {record}")
        last = record.number if record.is_live else record.number + 1
        path = self.world.disk.folder
        for number in range(1, last):
            key = key_of(self.feed, number)
            if left := _left(self._host, key):
                raise Broken(f"{key} was removed, and is in {left}")
            folders = [each for each in path.rglob(key) if each.is_dir()]
            if folders:
                raise Broken(f"{key} was removed, and has {folders}")
            self.world.faults.saw("feed was removed")


def _add_key(host: Host) -> None:
    if host.stores.keys.key(HOST, _KEY.id) is None:
        issuer = KeyIssuer(host.stores.keys, host.profiles, host.runtime.clock)
        issuer.create(HOST, _KEY, Key(_KEY.id, "", frozenset(Role), feeds=("own-",)))


def _left(host: Host, key: str) -> list[str]:
    """Return the tables that have rows of the feed *key*."""
    found = []
    with host.database.reading() as sql:
        tables = [name for (name,) in sql.execute("SELECT name FROM sqlite_master").fetchall()]
        for table in tables:
            columns = [row[1] for row in sql.execute(f"PRAGMA table_info({table})").fetchall()]
            if "feed" not in columns:
                continue
            if sql.execute(f"SELECT 1 FROM {table} WHERE feed = ? LIMIT 1", (key,)).fetchone():
                found.append(table)
    return found
