"""One run of a seed: a server is killed, restored and put to sleep while clients use it.

The server is the real host with its app; requests and messages enter at ASGI. A copy on a second
host may be promoted in place of a server that has ended. `Truth` is the log as it must be: it gets
each page when SQLite has committed it, and loses pages only when the world restores a backup or
promotes a copy.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from contextvars import copy_context
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from greenlet import GreenletExit

from tests.simulation import checks
from tests.simulation.faults import Faults
from tests.simulation.model import Broken, Log, Op, Wanted, _op
from tests.simulation.parts import bounds, instead
from tests.simulation.server import clients
from tests.simulation.server.disk import FILE, Disk
from tests.simulation.server.machine import OWNER, Machine, Pool
from tests.simulation.server.operators import Receiver, check_erased
from tests.simulation.stores import rows_of
from tidings.core.auth import quotas  # noqa: F401 (it is patched, so it is loaded before)
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyIssuer, PresentedKey
from tidings.core.errors import TidingsError, Unavailable
from tidings.core.model.feeds import PUSH, STATE
from tidings.core.model.pages import Page
from tidings.core.replication.admin import Action
from tidings.core.state.sums import SumReader
from tidings.http.outbound import credentials, upstream, webhooks  # noqa: F401 (loaded before)
from tidings.http.streams import row_prefetch, tail_poller  # noqa: F401
from tidings.server import host as host_module
from tidings.server import issuer_keys, serving, writer  # noqa: F401
from tidings.server.app import ServerApp
from tidings.server.host import Host
from tidings.server.http_server import HostCheck
from tidings.server.processes import Problem
from tidings.server.settings import Settings
from tidings.server.sqlite import database as database_module
from tidings.server.sqlite.database import MIGRATIONS, CannotOpen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.parts import Parts
    from tests.simulation.run import Outcome, Plan
    from tests.simulation.server.clients import Wire
    from tidings.core.erasure.entries import Entry

FEED, CHANGE = "main", "change"
# Kind -> how likely at each occasion, while a seed has switched it on.
RATES: Final = {
    "kill": 0.5,  # these: how a stay of a server ends
    "power_loss": 0.3,
    "kill_start": 0.2,
    "stop": 0.2,
    "restore": 0.25,
    "promotion": 0.35,  # of a copy on another host, in place of a server that has ended
    "upstream_fails": 0.1,  # at each request of a relay
    "outage": 0.15,  # days pass while the server is down
    "clock_step": 0.5,
    "clock_ahead": 0.5,  # by days, for some seconds
    "full_disk": 0.4,  # for some seconds
    "full_write": 0.3,  # of the writes then
    "read_error": 0.006,
    "read_error_at_start": 0.001,
    "rollback_error": 0.3,
    "write_error": 0.001,
    "hook_refuses": 0.05,  # an event, once
    "slow_disk": 0.3,  # commits take longer than the loop may wait
}
_STAY_S = (2.0, 25.0)  # how long a server runs until it is killed
_STAYS = (1, 3)
_REPEAT_S = 20.0  # a follower that failed runs again; before a sweep, most of the time
_CALM_S = 130.0  # two sweeps, and the longest lease
_SETTLE_S = 10.0  # then no sweep is needed any more
_DAY_S = 24 * 3600
# Bounds of the server, so small that a few operations need several steps.
_SMALL: dict[tuple[Any, str], int] = {
    (writer, "COMMIT_OPERATIONS_MAX"): 2,
    (writer, "SLICE_OPERATIONS"): 5,
    (writer, "JOBS_MAX"): 3,
    (database_module, "CHECKPOINT_PAGES"): 40,
}
_SOURCES = {FEED: {"url": "https://master.example/feeds/main"}}
_ISSUER = {"issuer": "https://issuer.example", "audience": "tidings", "claim": "tidings"}
_FLOOR = "SELECT floor FROM heads WHERE feed = ?"
_STEPS_S = (-7_200, -600, -70, -2, 2, 70, 600, 7_200)


class Truth(Log):
    """The log as it was committed; a restore cuts it, and numbers jump after that."""

    def __init__(self) -> None:
        super().__init__()
        self.last = 0  # number that was ever used
        self.lost: list[tuple[int, int]] = []  # pages that a restore took, and up to which number

    def committed(self, page: Page) -> None:
        lines = tuple(page.lines)
        if page.number in self._pages:
            if not self._is_same_page(page.number, lines):
                raise Broken(f"page {page.number} was written twice")
            return
        if page.number <= self.last:
            raise Broken(f"number {page.number} is used again, up to {self.last} were used")
        if page.first != self.frontier + 1:
            raise Broken(f"page {page.first} follows {self.frontier}")
        self._pages[page.number], self.seconds[page.number] = lines, page.at_ms // 1000
        self.last = self.frontier = page.number
        for slot, line in enumerate(lines):
            op = self._placed(_op(page.number, slot, page.at_ms, line))
            self._check_correction(op)
            self.ops.append(op)
            self._positions.append(op.at)
            at = self.of_marker.setdefault(op.marker, page.number)
            if at != page.number:
                raise Broken(f"{op.marker} is on pages {at} and {page.number}")

    def _check_correction(self, op: Op) -> None:
        """Check that the corrected object has the position that its row had when it was read."""
        if "after" not in op.data.get("data", ()):
            return
        last = next((each for each in reversed(self.ops) if each.key == op.key), None)
        after = op.data["data"]["after"]
        forgotten = after is None and (last is None or last.event == "delete")
        if not forgotten and (last is None or [*last.at] != after):
            raise Broken(f"{op.marker} corrects {op.key} after {after}, which is at {last}")

    def latest(self, wanted: Wanted) -> dict[tuple[str, str], Op]:
        """Return the fold, which has no changes: the state has none."""
        return {key: op for key, op in super().latest(wanted).items() if key[0] != CHANGE}

    def cut(self, page: int) -> None:
        """Forget the pages after *page*, because a backup is restored that has no later one."""
        if page >= self.frontier:
            return
        self.lost.append((page + 1, self.last))
        keep = self.index((page + 1, 0))
        del self.ops[keep:], self._positions[keep:]
        for number in [each for each in self._pages if each > page]:
            del self._pages[number], self.seconds[number]
        self.of_marker = {name: at for name, at in self.of_marker.items() if at <= page}
        self._parents.clear()
        self.frontier = page

    def is_lost(self, page: int) -> bool:
        return any(first <= page <= last for first, last in self.lost)

    def check_copied(self, pages: dict[int, Page]) -> None:
        """Check the pages of a copy, which are the pages that its master has committed."""
        for number, page in pages.items():
            if not self._is_same_page(number, page.lines):
                raise Broken(f"page {number} of the copy is not its master's")

    def check_pages(self, there: dict[int, Page], floor: int) -> None:
        """Check that a file has every page that was committed."""
        for number, lines in self._pages.items():
            if number < floor:
                continue
            if number not in there or not self._is_same_page(number, there[number].lines):
                raise Broken(f"page {number} was committed as {lines} and is not in the file")

    def _is_same_page(self, number: int, lines: Sequence[str]) -> bool:
        """Return True if *lines* are those of page *number*, but for the content of erased ones."""
        written = self._pages.get(number)
        return written == tuple(lines) or (
            written is not None
            and len(written) == len(lines)
            and all(
                self.is_same((number, slot), line, written[slot]) for slot, line in enumerate(lines)
            )
        )


class Process:
    """One process of the server, from its start to its end."""

    def __init__(self, world: World, number: int, disk: Disk) -> None:
        self.world, self.machine, self.disk = world, world.machine, disk
        self.name = f"server-{number}"
        self.dead = False
        self.tasks: dict[Any, None] = {}
        self.fibers: dict[Any, None] = {}
        self.waiting: list[Any] = []
        self.connections: list[sqlite3.Connection] = []
        self.wires: dict[Wire, None] = {}
        self.pool = Pool(world.machine)
        self.kill_in: int | None = None  # statements
        self.ended = asyncio.Event()
        self.host: Host | None = None
        self.app: ServerApp | None = None
        self.context = copy_context()
        self.context.run(OWNER.set, self)

    def run(self, coroutine: Any) -> asyncio.Task[Any]:
        """Start *coroutine* as a task of this process."""
        return self.machine.loop.create_task(coroutine, context=self.context)

    def at_statement(self, sql: str) -> None:
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in <= 0:
                self.crash()
                raise GreenletExit

    def crash(self, *, synced: bool = False) -> None:
        """End now, with the files as they are, or with a part of what was not *synced*."""
        if not self.dead:
            self.dead = True
            power = not synced and self.world.faults.strikes("power_loss")
            self.disk.crash(self.world.random, power=power)
            self.machine.note(self.name, "loses power" if power else "is killed")
            self.machine.loop.call_soon(self.ended.set, context=self.world.context)

    def end(self) -> None:
        """Take down all that is left of it."""
        self.dead = True
        for wire in list(self.wires):
            wire.cut()
        self.machine.kill(self)
        for connection in self.connections:
            connection.close()
        if self.host is not None:
            self.host.database._unlock()


class World:
    """The server, its files, its clients and its faults."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.random = Random(plan.seed)
        self.faults = Faults(self.random, clear=plan.clear, without=plan.without)
        on = {kind: rate for kind, rate in RATES.items() if self.random.random() < 0.65}
        rates = dict.fromkeys(RATES, 0.0) | ({} if plan.clear else on)
        self.faults.rates = {kind: 0.0 if kind in plan.without else rates[kind] for kind in RATES}
        self.faults.expected = set() if plan.clear else {*RATES} - plan.without
        self.machine = Machine(self.random)
        self.truth = Truth()
        self.models = {FEED: self.truth}
        self.disk = Disk(folder / "data", self)
        self.disk.folder.mkdir()
        self.backups: list[tuple[str, Path]] = []
        self.process: Process | None = None
        self.copy: Process | None = None
        self.reached_us = 0  # until then the copy reaches its master
        self.sources: dict[str, Any] = {}
        self.is_calm = False
        self.floor, self.leased_us, self.restores, self.promotions = 1, 0, 0, 0
        self.leasing: set[str] = set()  # workers with a request that may take the lease
        self.erasures, self.owners = plan.erasures, plan.owners
        self.erased: dict[str, Entry] = {}  # acknowledged, by marker
        self.hook = Receiver(self)
        self.context = copy_context()
        self.key = PresentedKey("k" * ID_LENGTH, "s" * 32) if plan.seed % 4 == 3 else None
        self.acknowledged: dict[str, list[tuple[int, int]]] = {}  # markers, with their places
        self._folder, self._starts, self._places = folder, 0, 0
        self.clients: list[Any] = []

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of each request."""
        key = (
            [] if self.key is None else [(b"authorization", f"Bearer {self.key.encode()}".encode())]
        )
        return [(b"host", b"127.0.0.1"), *key]

    # The life of the server.

    async def main(self) -> None:
        """Play the whole run."""
        self.clients = clients.begin(self)
        for _ in range(self.random.randint(*_STAYS)):
            await self._stay()
        process = await self._last_stay()
        await self._settle()
        await process.run(self._check(process))
        self.machine.loop.stop()

    async def _last_stay(self) -> Process:
        """Return a server that meets no more faults; it may have met some."""
        process = await self._start() if self.random.random() < 0.6 else None
        if process is not None:
            chaos = self.machine.loop.create_task(self._chaos(process))
            await asyncio.sleep(self.random.uniform(*_STAY_S))
            chaos.cancel()
        steps = self.faults.strikes("clock_step")
        self.faults.calm()
        self.is_calm, self.disk.is_full, self.disk.is_slow = True, False, False
        self.machine.note("world", "calm")
        process = process or await self._start()
        await asyncio.sleep(_REPEAT_S)
        self._check_followers(process)
        if steps:
            self.machine.wall_us += self.random.choice(_STEPS_S) * 10**6
        return process

    async def _stay(self) -> None:
        """Run a server until it is killed, or stopped."""
        self.disk.is_slow = self.faults.strikes("slow_disk")
        process = await self._start()
        chaos = self.machine.loop.create_task(self._chaos(process))
        if self.faults.strikes("promotion"):
            self.copy = await self._start_copy()
        stay_s = self.random.uniform(*_STAY_S)
        stops = self.faults.strikes("stop")
        if not stops and self.faults.strikes("kill"):
            await asyncio.sleep(stay_s)
            process.kill_in = self.random.randint(1, 200)
            stay_s = 20.0
        try:
            async with asyncio.timeout(stay_s):
                await process.ended.wait()
        except TimeoutError:
            if stops:
                self.machine.note(process.name, "stops")
                await process.run(self._stop(process))
        chaos.cancel()
        process.crash(synced=stops)
        self._end(process)
        await asyncio.sleep(self.random.uniform(0.1, 5))
        if self.copy is not None:
            await self._promote(self.copy)
        elif self.backups and self.faults.strikes("restore"):
            self._restore()
        if self.faults.strikes("outage"):
            self.machine.now_us += int(self.random.uniform(1, 30) * _DAY_S * 1e6)
            self.machine.note("world", "days pass")

    async def _start(self) -> Process:
        while True:
            self._starts += 1
            self.disk.is_full = self.disk.is_full and self.random.random() < 0.5
            process = Process(self, self._starts, self.disk)
            if self.faults.strikes("kill_start"):
                process.kill_in = self.random.randint(1, 80)
            _set_began(self.machine)
            began = process.run(self._open(process, self.sources))
            ended = self.machine.loop.create_task(process.ended.wait())
            await asyncio.wait([began, ended], return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            if process.dead:
                self._end(process)
                continue
            error = began.exception()
            if error is None:
                process.kill_in = None
                self.process = process
                self.machine.note(process.name, "serves", self.truth.frontier)
                return process
            if not isinstance(error, (CannotOpen, Problem, TidingsError)) or self.is_calm:
                raise error
            self.machine.note(process.name, "cannot start", str(error))
            process.crash(synced=True)  # it has closed the file
            self._end(process)
            await asyncio.sleep(1)

    async def _open(self, process: Process, sources: dict[str, Any]) -> None:
        values = {"TIDINGS_FEEDS": FEED, "TIDINGS_OPEN": "true"}
        values |= {"TIDINGS_SOURCES": json.dumps(sources)} if sources else {}
        if self.key is not None:
            values["TIDINGS_OIDC"] = json.dumps(_ISSUER)
        host = process.host = await Host.open(process.disk.path, Settings.read(values))
        if self.key is not None:
            await asyncio.to_thread(self._add_key, host)
        await asyncio.to_thread(host.start)
        process.app = ServerApp(host, HostCheck(), None)
        process.run(serving._sweep(host))

    # A copy on another host. It meets no faults of its own before it is promoted.

    async def _start_copy(self) -> Process:
        folder = self._new_place()
        folder.mkdir()
        process = Process(self, 0, Disk(folder, self))
        process.name = "copy"
        self.reached_us = self.machine.now_us + int(self.random.uniform(1, 20) * 1e6)
        await process.run(self._open(process, _SOURCES))
        self.machine.note("copy", "serves")
        return process

    async def _promote(self, copy: Process) -> None:
        """Promote the copy, and use its data and its clients now; the master never returns."""
        assert copy.host is not None
        control, self.copy = copy.host.relay_control, None
        try:
            await copy.run(asyncio.to_thread(control.act, FEED, Action.PROMOTE, {"why": "a test"}))
            await copy.run(self._stop(copy))
        except TidingsError as error:  # such as a copy that has not read all rows
            self.machine.note("copy", "is not promoted", str(error))
            return
        finally:
            copy.crash(synced=True)
            copy.end()
        copy.disk.restart()
        pages, floor = _pages_of(copy.disk.read(), self._folder)
        if _lacks_an_entry(pages):
            self.machine.note("world", "gives the copy up")
            return
        self.disk, self.sources, self.floor = copy.disk, _SOURCES, floor
        jump = pages.pop(max(pages))  # in place of pages that the master may have had
        self.truth.check_copied(pages)
        self.machine.note("world", "promotes", jump.first - 1, self.truth.frontier, jump.number)
        self._went_back(jump.first - 1)
        self.promotions += 1
        self.truth.committed(jump)
        self.faults.saw("copy was promoted")

    def _ask_upstream(
        self, _: object, url: str, parameters: dict[str, str], block_s: int = 0, after: int = 0
    ) -> str:
        """Implement `HttpUpstream._ask`: let the thread of a relay wait for the server's answer."""
        if self.machine.now_us > self.reached_us or self.faults.strikes("upstream_fails"):
            raise Unavailable("the upstream does not answer")
        process = OWNER.get()
        target = f"{urlsplit(url).path}?{urlencode(parameters)}"

        async def ask() -> tuple[int, Any]:
            try:
                return await clients.request(self, "GET", target, is_json=False)
            except clients.Lost:
                return 503, b""

        asked = self.machine.loop.create_task(ask(), context=self.context)
        asked.add_done_callback(lambda _: self.machine.wake(process), context=self.context)
        self.machine.wait("waits for an upstream", asked.done)
        status, found = asked.result()
        if status != 200:
            raise upstream._refusal("master", status, found.decode(), after)
        return str(found.decode())

    def _add_key(self, host: Host) -> None:
        """Close the feed to clients without this key, if it is not closed yet."""
        assert self.key is not None
        if not any(host.stores.keys.keys(FEED)):
            issuer = KeyIssuer(host.stores.keys, host.profiles, host.runtime.clock)
            issuer.create(FEED, self.key, Key(self.key.id, "", frozenset(Role)))

    def _ask(self, url: str, ca_certs: str | None = None) -> dict[str, Any]:
        """Answer as an issuer of tokens that has no keys, after a while."""
        self.machine.sleep(2.0)
        return {"issuer": _ISSUER["issuer"], "jwks_uri": "https://issuer.example/keys", "keys": []}

    async def _stop(self, process: Process) -> None:
        """Stop in order, as `serving` does."""
        assert process.host is not None and process.app is not None
        process.app.end_streams()
        process.host.sockets.close_all()
        await asyncio.sleep(serving.GRACE_S)
        for wire in list(process.wires):
            wire.cut()
        await asyncio.sleep(0.1)
        await process.host.stop()

    def _end(self, process: Process) -> None:
        self.process = None
        process.end()
        self.disk.restart()
        self.truth.check_pages(*_pages_of(self.disk.read(), self._folder))

    async def _chaos(self, process: Process) -> None:
        """Let things happen to a server that runs."""
        while True:
            await asyncio.sleep(self.random.uniform(1, 10))
            kind = self.random.choice(("clock", "ahead", "disk", "backup", "copy"))
            if kind == "clock" and self.faults.strikes("clock_step"):
                step_s = self.random.choice(_STEPS_S)
                self.machine.wall_us += step_s * 10**6
                self.machine.note("world", "clock steps", step_s)
            elif kind == "ahead" and self.faults.strikes("clock_ahead"):
                await self._be_ahead()
            elif kind == "disk" and self.faults.strikes("full_disk"):
                self.disk.is_full = True
                await asyncio.sleep(self.random.uniform(0.1, 5))
                self.disk.is_full = False
            elif kind == "backup":
                await process.run(self._back_up(process))
            elif kind == "copy":
                self._copy()

    async def _be_ahead(self) -> None:
        """Set the clock forwards, and correct it before the next process starts."""
        ahead_us = self.random.choice((2 * 3600, 40 * _DAY_S)) * 10**6
        self.machine.wall_us += ahead_us
        self.machine.note("world", "clock is ahead", ahead_us)
        try:
            await asyncio.sleep(self.random.uniform(1, 20))
        finally:
            self.machine.wall_us -= ahead_us

    async def _back_up(self, process: Process) -> None:
        assert process.host is not None
        target = self._new_place()
        target.mkdir()
        try:
            await asyncio.to_thread(process.host.database.back_up, target / FILE)
        except TidingsError:
            return
        self.backups.append(("backup", target))

    def _new_place(self) -> Path:
        self._places += 1
        return self._folder / f"backup-{self._places}"

    def _copy(self) -> None:
        target = self._new_place()
        shutil.copytree(self.disk.folder, target, copy_function=shutil.copy2)
        self.backups.append((self.random.choice(("file", "folder")), target))

    def _restore(self) -> None:
        """Put a backup in place of the data, as an operator does."""
        kind, source = self.random.choice(self.backups)
        files = {part: source / f"{FILE}{part}" for part in ("", "-wal")}
        content = {part: path.read_bytes() for part, path in files.items() if path.exists()}
        pages, _ = _pages_of(content, self._folder)
        if kind != "file":
            shutil.rmtree(self.disk.folder)
            self.disk.folder.mkdir()
        if kind == "folder":
            shutil.copytree(source, self.disk.folder, dirs_exist_ok=True)
        self.disk.write(content)
        end = max(pages, default=0)
        self.machine.note("world", "restores", kind, end, self.truth.frontier)
        self._went_back(end)

    def _went_back(self, end: int) -> None:
        """The log has no page after *end* any more."""
        self.truth.cut(end)
        self.restores += 1
        self.backups.clear()  # another one of before would be a restore of a restore
        for client in self.clients:
            client.restored()

    def written(self, connection: sqlite3.Connection) -> None:
        """Note the pages that a commit has added."""
        for page in _read_pages(connection, self.truth.frontier):
            try:
                self.truth.committed(page)
            except Broken as broken:
                self.machine.breaks(broken)
                raise
        row = sqlite3.Connection.execute(connection, _FLOOR, (FEED,)).fetchone()
        self.floor = row[0] if row else 1

    # The end.

    async def _settle(self) -> None:
        """Wait until every client and follower is at the end of the log, after some sweeps."""
        await asyncio.sleep(_CALM_S)
        await clients.post_last(self)
        end_us = self.machine.now_us + int(_SETTLE_S * 1e6)
        process = self.process
        assert process is not None
        # In the context of the process, because a read may open a connection.
        while self.machine.now_us < end_us and not process.context.copy().run(self._is_settled):
            await asyncio.sleep(1)

    def _is_settled(self) -> bool:
        assert self.process is not None and self.process.host is not None
        followers = self.process.host.stores.followers.checkpoints(FEED)
        ends = {followers.get(name) for name in (STATE, PUSH)}
        waits = any(each.is_waiting for each in self.process.host.stores.erasures.unfinished(FEED))
        at_end = ends == {self.truth.frontier}
        return at_end and not waits and all(each.is_done() for each in self.clients)

    def _check_followers(self, process: Process) -> None:
        """Check that followers are at the end, also if their last run has failed."""
        assert process.host is not None
        followers = process.host.stores.followers.checkpoints(FEED)
        for name in (STATE, PUSH):
            if followers.get(name) != self.truth.frontier:
                at = followers.get(name)
                raise Broken(f"{name} is at {at}, the log ends at {self.truth.frontier}")

    async def _check(self, process: Process) -> None:
        """Check every promise, at rest."""
        assert process.host is not None
        stores = self.stores = process.host.stores
        self._check_followers(process)
        view: Any = self
        checks.check_state(view, FEED)
        sums: Any = SumReader(stores.sums, stores.followers)
        state: Any = stores.state
        if checks.check_sums(sums, state, FEED):
            self.faults.saw("sums were known")
        for marker, places in self.acknowledged.items():
            page = self.truth.of_marker.get(marker)
            if any(at[0] != page and not self.truth.is_lost(at[0]) for at in places):
                raise Broken(f"{marker} was acknowledged at {places} and is not there")
        for client in self.clients:
            client.check()
        if self.erasures:
            rows = [row.line for row in rows_of(state, FEED)]
            self.faults.saw("entry was erased", check_erased(self.truth, stores, rows))


def _lacks_an_entry(pages: dict[int, Page]) -> bool:
    """Return True if an entry was erased on the master before it was copied, and the entry of that
    erasure was not copied. After a promotion, consumers would not learn that its object is gone.
    """
    names = set(
        re.findall('"id":"erased:([0-9a-f]+)"', "".join(page.text for page in pages.values()))
    )
    return any(int(name, 16) not in pages for name in names)


def _set_began(machine: Machine) -> None:
    """Let a process begin now; a copy on another host has no clock of its own here."""
    host_module.BEGAN_MS = machine.time_ns() // 10**6
    host_module._BEGAN_S = machine.now_us / 1e6


def _read_pages(connection: sqlite3.Connection, after: int) -> list[Page]:
    rows = sqlite3.Connection.execute(
        connection,
        "SELECT page, body, at_ms, skipped FROM pages WHERE feed = ? AND page > ? ORDER BY page",
        (FEED, after),
    ).fetchall()
    return [Page(number, body, "", at_ms, skipped=more) for number, body, at_ms, more in rows]


def _pages_of(files: dict[str, bytes], folder: Path) -> tuple[dict[int, Page], int]:
    """Return the pages in a copy of *files*, and the floor of the feed."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for part, content in files.items():
            (Path(place) / f"{FILE}{part}").write_bytes(content)
        with closing(sqlite3.connect(Path(place) / FILE)) as connection:
            try:
                if connection.execute("PRAGMA user_version").fetchone() != (len(MIGRATIONS),):
                    return {}, 1
                pages = {page.number: page for page in _read_pages(connection, 0)}
                row = connection.execute(_FLOOR, (FEED,)).fetchone()
                return pages, row[0] if row else 1
            except sqlite3.Error as error:
                raise Broken(f"the file cannot be read: {error}") from error


class _Errors(logging.Handler):
    """Breaks the seed at an error that the server logs and no fault explains."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.machine.note("log", record.getMessage(), str((record.exc_info or [0, 0])[1]))
        if record.exc_info and not isinstance(record.exc_info[1], TidingsError):
            self._world.machine.breaks(record.exc_info[1] or Broken(record.getMessage()))


@contextmanager
def _logged(world: World) -> Iterator[None]:
    logger, handler = logging.getLogger("tidings"), _Errors(world)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


def play(plan: Plan, parts: Parts) -> Outcome:
    """Run the seed of *plan*; see `tests.simulation.run.run`."""
    from tests.simulation.run import Failed, Outcome, _without_collector

    shm = Path("/dev/shm")
    with _without_collector(), ExitStack() as stack:
        place = tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None)
        world = World(plan, Path(stack.enter_context(place)))
        machine = world.machine
        small = plan.seed % 2 == 1
        stack.enter_context(bounds(small=small))
        for (module, name), value in _SMALL.items():
            stack.enter_context(instead(module, name, value if small else getattr(module, name))())
        stack.enter_context(parts.around())
        stack.enter_context(machine.installed())
        stack.enter_context(_logged(world))
        stack.enter_context(instead(database_module, "_lock_file", lambda path: None)())
        stack.enter_context(instead(host_module, "Poster", world.hook.poster)())
        asks = lambda *of, **more: world._ask_upstream(*of, **more)  # noqa: E731
        stack.enter_context(instead(upstream.HttpUpstream, "_ask", asks)())
        stack.enter_context(instead(credentials, "ask_over_http", world._ask)())
        elapsed = (machine.monotonic,)  # bound when the module was loaded
        stack.enter_context(instead(credentials.Tokens.__init__, "__defaults__", elapsed)())
        machine.loop.create_task(world.main())
        machine.loop.run_forever()
        broken = machine.broken
        if world.process is not None:
            world.process.crash(synced=True)
            world.process.end()
        machine.close()
    if broken is not None:
        reason = f"{type(broken).__name__}: {broken}"
        raise Failed(plan, reason, machine.history) from broken
    return Outcome(
        fired=Counter(world.faults.fired),
        expected=frozenset(world.faults.expected),
        acknowledged=len(world.acknowledged),
        unknown=0,
        events=sum(each.events for each in world.clients),
        steps=machine.steps,
        history=machine.history,
    )
