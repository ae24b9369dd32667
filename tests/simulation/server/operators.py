"""Clients that operate the server: corrections, keys, webhooks and settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.simulation.model import Broken, Place, Position
from tests.simulation.producer import PARENTS, TYPES
from tests.simulation.server.clients import IDS, Client, Lost, Wire, request
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyIssuer, PresentedKey
from tidings.core.changeagent.webhooks import Outgoing, Verdict
from tidings.core.erasure.entries import Entry
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.errors import TidingsError
from tidings.core.model.operations import begins_with_erasure
from tidings.core.settings import profiles

if TYPE_CHECKING:
    from tests.simulation.server.world import Truth, World
    from tidings.server.host import Host
    from tidings.server.stores import FileStores

_GRANTS_S = 6.0  # 17.7: a revoked key grants nothing after 5 s, and a request takes a moment
_HOOK = "/feeds/main/hooks/h"


async def on_host(world: World, call: Callable[[Host], object]) -> None:
    """Run *call* in a thread of the server, as the commands of operators do.

    Raises:
        Lost: the server is down, or could not do it.
    """
    process = world.process
    if process is None or process.dead or process.host is None:
        raise Lost
    job = process.run(asyncio.to_thread(call, process.host))
    await asyncio.wait([job, ended := asyncio.ensure_future(process.ended.wait())], timeout=30)
    ended.cancel()
    if not job.done() or process.dead:
        raise Lost
    if isinstance(error := job.exception(), TidingsError):
        raise Lost from error
    job.result()


class Corrector(Client):
    """Reads rows and corrects their objects; `Truth` checks that no object has moved since."""

    lines = 0

    async def use(self) -> None:
        random = self.world.random
        await asyncio.sleep(random.uniform(0.5, 8))
        if self.world.is_calm:
            return
        kind = random.choice(TYPES)
        keys = [f"{kind}/o{at}" for at in random.sample(range(IDS), random.randint(1, 5))]
        asked = json.dumps({"keys": keys}).encode()
        path = "/feeds/main/corrections"
        status, found = await request(self.world, "POST", f"{path}/rows", asked)
        if status != 200:
            return self._refused(status, found)
        await asyncio.sleep(random.choice((0, 0, 0.5)))
        at = {row["key"]: (row["page"], row["slot"]) for row in found["rows"]}
        restores = self.world.restores
        lines = [self._line(key, at.get(key)) for key in keys[: found["count"]]]
        body = "\n".join(json.dumps(line) for line in lines).encode()
        path, ndjson = f"{path}?through={found['state']}", {"content-type": "application/x-ndjson"}
        for attempt in range(3):
            if restores != self.world.restores:
                return None  # its rows are of the log that was lost
            with suppress(Lost):
                status, answer = await request(self.world, "POST", path, body, ndjson)
                if status != 200:
                    return self._refused(status, answer)
                markers = [line["data"]["of"] for line in lines]
                return self._check(answer, markers, counts=attempt == 0)
        return None

    def _refused(self, status: int, answer: Any) -> None:
        if status not in (410, 503):  # 18.6: an old plan
            raise Broken(f"{self.name} was answered with {status}: {answer}")

    def _line(self, key: str, at: Position | None) -> dict[str, Any]:
        random, (kind, name) = self.world.random, key.split("/")
        self.lines += 1
        return {
            "event": random.choice(("update", "update", "delete")),
            "type": kind,
            "id": name,
            "parents": random.sample(PARENTS, random.choice((0, 1, 2))),
            "timestamp": "2026-11-01T00:00:00.000Z",
            "data": {"of": f"{self.name}.{self.lines}", "after": at},
            "at": "" if at is None else f"{at[0]:010x}{at[1]:06x}",
        }

    def _check(self, answer: Any, markers: list[str], *, counts: bool) -> None:
        there = sum(marker in self.world.truth.of_marker for marker in markers)
        verdicts = answer["applied"] + answer["moved"] + answer["done"]
        if verdicts != answer["behind"] or (counts and answer["applied"] != there):
            raise Broken(f"{self.name}: {answer}, and {there} of {markers} are there")
        self.world.faults.saw("correction was applied", there)


class Guest(Client):
    """Reads with a key of its own, which is revoked while it listens."""

    keys = 0

    async def use(self) -> None:
        world, random = self.world, self.world.random
        self.keys += 1
        given = PresentedKey(f"{self.name}{self.keys}".ljust(ID_LENGTH, "g"), "s" * 32)
        wanted = Key(given.id, "", frozenset({Role.READ}))
        await on_host(world, lambda host: _issuer(host).create("main", given, wanted))
        restores = world.restores
        secret = (b"authorization", f"Bearer {given.encode()}".encode())
        headers = [(b"host", b"127.0.0.1"), secret]
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/ops"}
        scope["headers"] = [*headers, (b"accept", b"text/event-stream")]
        wire = Wire(world, scope, {"type": "http.request", "body": b""})
        try:
            await asyncio.sleep(random.uniform(0, 5))
            await self._revoke(given.id, wire, restores)
        finally:
            wire.cut()
        status, answer = await request(world, "GET", "/changes", only=headers)
        if restores == world.restores and status not in (401, 503):
            raise Broken(f"{self.name} is answered with {status} with a revoked key: {answer}")
        world.faults.saw("key was revoked")

    async def _revoke(self, key: str, wire: Wire, restores: int) -> None:
        """Revoke *key*, with which *wire* was opened; *wire* must receive nothing more then."""
        status, answer = await request(self.world, "POST", f"/feeds/main/keys/{key}/revoke")
        if status == 503 or restores != self.world.restores:
            raise Lost
        if status != 200:
            raise Broken(f"{self.name}: a revocation was answered with {status}: {answer}")
        await asyncio.sleep(_GRANTS_S)
        while not wire.to_client.empty():
            wire.to_client.get_nowait()
        await asyncio.sleep(self.world.random.uniform(1, 5))
        late = None if wire.to_client.empty() else wire.to_client.get_nowait()
        if late and late.get("body"):
            raise Broken(f"{self.name} receives {late} with a revoked key")


class Eraser(Client):
    """Erases objects; at the end, no store has the content of an entry before an erasure."""

    requests = 0

    async def use(self) -> None:
        world, random = self.world, self.world.random
        await asyncio.sleep(random.uniform(0.1, 2))
        if world.is_calm:
            return
        self.requests += 1
        marker, restores = f"{self.name}.{self.requests}", world.restores
        entry = Entry(random.choice(TYPES), f"o{random.randrange(IDS)}", self.name, marker)
        found: list[Erasure] = []

        def erase(host: Host) -> None:
            assert host.erasures is not None
            found.append(host.erasures.request("main", entry, f"{marker}-key"))

        for _ in range(random.choice((1, 1, 2))):  # a repetition is the same erasure
            await on_host(world, erase)
        if restores != world.restores:
            return
        places = {each.place.page for each in found}
        if places != {world.truth.of_marker.get(marker)}:
            raise Broken(f"{marker} was acknowledged at {places} without being there")
        world.erased[marker] = entry
        world.faults.saw("object was erased")

    def check(self) -> None:
        for marker in self.world.erased:
            if marker not in self.world.truth.of_marker:
                raise Broken(f"the erasure {marker} was acknowledged, and is not in the log")


def check_erased(truth: Truth, stores: FileStores, rows: Iterable[str]) -> int:
    """Check that no store has the content of an erased entry; return the number of these entries.

    *rows* are the lines of the state.
    """
    pages = stores.log.read("main", 0, 10**6)
    while pages.more:
        pages += (more := stores.log.read("main", pages[-1].number))
        pages.more = more.more
    records = {each.place.page: each for each in stores.erasures.erasures("main", limit=10**6)}
    # A copy may have begun after the entry, or after it was erased itself.
    there = {page.number for page in pages if begins_with_erasure(page.text)}
    for op in truth.ops:
        record = records.get(op.at[0])
        if op.erases and op.at[0] in there and not (record and record.reached(Phase.KEPT)):
            raise Broken(f"the erasure {op} is not done: {record}")
    parked = [
        each.line
        for consumer in stores.consumers.consumers("main")
        for each in stores.consumers.parked("main", consumer.name)
    ]
    text = "\n".join([*(page.text for page in pages), *rows, *parked])
    erased = [op for op in truth.ops if not op.erases and truth.erasures_of(op)]
    for op in erased:
        if json.dumps(op.data["data"], separators=(",", ":")) in text:
            raise Broken(f"{op} was erased, and its content is still there")
    return len(erased)


def _issuer(host: Host) -> KeyIssuer:
    return KeyIssuer(host.stores.keys, host.profiles, host.runtime.clock)


class Settings(Client):
    """Changes the feed's settings; a setting that was acknowledged stays."""

    number, stored, restores = 0, 0, 0

    async def use(self) -> None:
        world = self.world
        await asyncio.sleep(world.random.uniform(0.5, 10))
        self.number += 1
        number, url = self.number, f"https://{self.number}.example/{{id}}"
        leave = world.random.random() < 0.5
        found: list[str] = []

        def change(host: Host) -> None:
            found.append(host.stores.profiles.profile("main").object_url)
            profiles.change(
                host.profiles, "main", lambda old: replace(old, object_url=url, leave=leave)
            )

        before, self.restores = self.restores, world.restores
        await on_host(world, change)
        known = int(found[0].split(".")[0].rpartition("/")[2]) if found[0] else 0
        if before == world.restores and known < self.stored:
            raise Broken(f"{self.name}: setting {self.stored} was stored, and {known} is there")
        self.stored = number
        world.faults.saw("settings were changed")


class Receiver:
    """The endpoint of the webhook, and its `Poster` in the server.

    It accepts each event at least once, and none before earlier ones of its object.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.accepted: set[Position] = set()
        self.after = -1  # the page after which the webhook must deliver; -1: it does not exist
        self._refused: set[Position] = set()
        self.closed: dict[int, bool] = {}

    def poster(self, **_: Any) -> Any:
        return _Poster(self)

    def receive(self, outgoing: Outgoing) -> Verdict:
        world = self.world
        world.machine.sleep(world.random.choice((0.001, 0.001, 0.02, 1)))
        at = Place.of(outgoing.headers["webhook-id"]).at
        op = world.truth.op(at)
        if op is None:
            if not world.truth.is_lost(at[0]):
                raise Broken(f"the webhook receives {at}, which was never written")
            return Verdict(200)
        if at not in self._refused and world.faults.strikes("hook_refuses"):
            self._refused.add(at)  # once: the second attempt is after 5 s, the third after 5 min
            return world.random.choice((Verdict(503), Verdict(failure="no answer")))
        for earlier in world.truth.ops[: world.truth.index(at)]:
            missed = earlier.at not in self.accepted and earlier.at[0] > self.after >= 0
            # An entry that was erased has no object any more, so it may come at any time.
            if earlier.key == op.key and missed and not world.truth.erasures_of(earlier):
                raise Broken(f"the webhook receives {at} without {earlier.at} of {op.key}")
        world.machine.note("hook", "accepts", at)
        self.accepted.add(at)
        return Verdict(200)

    def missing(self) -> list[Position]:
        """Return the events that it must have received, and has not."""
        return [
            op.at
            for op in self.world.truth.ops
            if op.at[0] > self.after >= 0 and op.key[0] != "change" and op.at not in self.accepted
        ]


class _Poster:
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def __call__(self, requests: Sequence[Outgoing]) -> Sequence[Verdict]:
        return [self._receiver.receive(each) for each in requests]

    def close(self) -> None: ...


class HookOwner(Client):
    """Creates the webhook, again if a restore took it or the request failed half way."""

    async def use(self) -> None:
        world, hook = self.world, self.world.hook
        status, answer = await request(world, "GET", _HOOK)
        if status == 404 or (status == 200 and answer["state"] == "without a consumer"):
            hook.after = -1
            restores = world.restores
            body = json.dumps({"url": "https://hook.example/"}).encode()
            status, answer = await request(world, "PUT", _HOOK, body)
            if restores != world.restores:
                return
        if status in (200, 201) and hook.after < 0:
            hook.after = world.truth.frontier
        elif status not in (200, 201, 503):
            raise Broken(f"{self.name} is answered with {status}: {answer}")
        await asyncio.sleep(5)

    def restored(self) -> None:
        self.world.hook.after = -1  # perhaps it was created since

    def is_done(self) -> bool:
        return self.world.hook.after >= 0 and not self.world.hook.missing()

    def check(self) -> None:
        if missing := self.world.hook.missing():
            raise Broken(f"the webhook has not received {missing[:5]} of {len(missing)}")
        self.world.faults.saw("hook was called", len(self.world.hook.accepted))
