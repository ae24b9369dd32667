"""Clients of the server: producers, and readers on each transport, as PROTOCOL.md requires them."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tests.simulation.consumer import FILTERS, RESET, Consumer, Session, sse_blocks
from tests.simulation.model import Broken, Place
from tests.simulation.producer import PARENTS, TYPES
from tests.simulation.server.machine import OWNER
from tidings.http.asgi import ARRIVAL, Arrival

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from tests.simulation.server.world import Process, World

_PATIENCE_S = 30.0
_IDLE_S = 45.0  # 7.3: a stream says something at least so often
_RETRY_S = (0.05, 2.0)
NOTHING: Mapping[str, str] = {}
IDS, _CHANGE = 8, "change"
_KEY_US = 20 * 3600 * 10**6  # shorter than a key is remembered
_LEASE_US = 100 * 10**6  # 14.3: 30 s, and as much as two clocks may differ
_AGAIN = 0.3  # how often a producer repeats one of its last requests with a key
_JSON = "application/json"
_SLOT_BITS = 10  # 12.2: an `_id` is a page number and a slot


# A token with the id of a key that no issuer has.
_FORGED = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


class Lost(Exception):
    """The connection is gone, or never was."""


class Wire:
    """A connection of a client. Messages take a moment in each direction."""

    def __init__(self, world: World, scope: dict[str, Any], *messages: dict[str, Any]) -> None:
        process = world.process
        if process is None or process.dead or process.app is None:
            raise Lost
        self._world, self._process = world, process
        self._latency_s = world.random.choice((0.0, 0.001, 0.02))
        self.is_cut = False
        self.to_client: asyncio.Queue[MutableMapping[str, Any] | None] = asyncio.Queue()
        self._travelling: deque[MutableMapping[str, Any] | None] = deque()
        self._to_server: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self._gone = {
            "type": "http.disconnect" if scope["type"] == "http" else "websocket.disconnect"
        }
        for message in messages:
            self.send(message)
        process.wires[self] = None
        process.run(self._serve(process, {"query_string": b"", **scope}))

    async def _serve(self, process: Process, scope: dict[str, Any]) -> None:
        assert process.app is not None
        try:
            await process.app(scope, self._to_server.get, self._send)
        finally:
            process.wires.pop(self, None)
            self._later(None)

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if self.is_cut:
            raise OSError("the client has left")
        self._later(message)
        await asyncio.sleep(0)

    def _later(self, message: MutableMapping[str, Any] | None) -> None:
        loop = self._world.machine.loop
        if loop.is_running():
            self._travelling.append(message)
            loop.call_later(self._latency_s, self._deliver, context=self._world.context)

    def _deliver(self) -> None:
        message = self._travelling.popleft()  # timers of one moment come in any order
        if not self.is_cut or message is None:
            self.to_client.put_nowait(message)

    def send(self, message: dict[str, Any]) -> None:
        self._to_server.put_nowait(message)

    async def receive(self, within_s: float = _PATIENCE_S) -> MutableMapping[str, Any]:
        """Return the next message of the server.

        Raises:
            Lost: the connection has ended.
            TimeoutError: nothing came.
        """
        async with asyncio.timeout(within_s):
            message = await self.to_client.get()
        if message is None:
            raise Lost
        return message

    def cut(self) -> None:
        """End the connection, and lose the messages that are on their way."""
        if not self.is_cut:
            self.is_cut = True
            self.to_client.put_nowait(None)
            self._process.wires.pop(self, None)
            if not self._process.dead:
                self._to_server.put_nowait(self._gone)


async def request(
    world: World,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] = NOTHING,
    *,
    is_json: bool = True,
    within_s: float = _PATIENCE_S,
    only: list[tuple[bytes, bytes]] | None = None,
) -> tuple[int, Any]:
    """Return status and body of the answer. *only* are headers that replace those of the world.

    Raises:
        Lost: the answer did not come.
    """
    path, _, query = path.partition("?")
    pairs = [(name.encode(), text.encode()) for name, text in headers.items()]
    arrival = Arrival()
    if world.random.random() < 0.8:  # the body came with the head
        arrival.body = body
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [*(world.headers if only is None else only), *pairs],
        ARRIVAL: arrival,
    }
    wire = Wire(world, scope, {"type": "http.request", "body": body})
    status, found = 0, b""
    try:
        while True:
            message = await wire.receive(within_s)
            status = message.get("status", status)
            found += message.get("body", b"")
            if message["type"] == "http.response.body" and not message.get("more_body"):
                break
    except TimeoutError:
        if within_s == _PATIENCE_S and world.is_calm:
            raise Broken(f"{method} {path} was not answered") from None
        raise Lost from None
    finally:
        wire.cut()
    if status == 500:
        raise Broken(f"{method} {path} was answered with 500: {found!r}")
    return status, json.loads(found) if found and is_json else found


class Client:
    """Something that uses the server until the run ends; *events* counts what it received."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.events = world, name, 0
        world.machine.loop.create_task(self._live())

    async def _live(self) -> None:
        while True:
            with suppress(Lost):
                await self.use()
            await asyncio.sleep(self.world.random.uniform(*_RETRY_S))

    async def use(self) -> None:
        raise NotImplementedError

    def restored(self) -> None:
        """The server was put back to an earlier state."""

    def is_done(self) -> bool:
        return True

    def check(self) -> None: ...


class Producer(Client):
    """Posts operations and changes, with and without keys; repeats what was not answered."""

    requests = 0

    def __init__(self, world: World, name: str) -> None:
        self._recent: deque[tuple[Any, ...]] = deque(maxlen=4)
        super().__init__(world, name)

    async def use(self) -> None:
        random = self.world.random
        if self.world.is_calm:
            await asyncio.sleep(10)
            return
        if self._recent and random.random() < _AGAIN:
            await self._send(*random.choice(self._recent))
        await self.post([self._operation() for _ in range(random.choice((1, 1, 1, 3, 12)))])
        await asyncio.sleep(random.expovariate(1 / random.choice((0.02, 0.5, 2))))

    def _operation(self) -> dict[str, Any]:
        random = self.world.random
        return {
            "event": random.choices(("insert", "update", "delete"), (3, 4, 2))[0],
            "type": random.choice(TYPES),
            "id": f"o{random.randrange(IDS)}",
            "parents": random.sample(PARENTS, random.choice((0, 1, 1, 2))),
        }

    async def post(self, operations: list[dict[str, Any]]) -> None:
        """Post one request, until it was answered or cannot be repeated."""
        self.requests += 1
        random, marker = self.world.random, f"{self.name}.{self.requests}"
        headers = {"prefer": "return=representation"}
        if random.random() < 0.5:
            headers["idempotency-key"] = marker
        path, body, headers["content-type"] = self._written(operations, marker)
        # A copy does not have the keys of requests to its master.
        end = self.world.machine.now_us + _KEY_US, self.world.promotions
        await self._send(marker, path, body, headers, *end)
        if "idempotency-key" in headers:  # a repetition is answered as the first one
            self._recent.append((marker, path, body, headers, *end))

    async def _send(
        self,
        marker: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        end_us: int,
        promotions: int,
    ) -> None:
        world, random = self.world, self.world.random
        while world.machine.now_us < end_us and world.promotions == promotions:
            try:
                was_calm = self.world.is_calm  # a fault before may still be answered afterwards
                hurries = random.random() < 0.1 and not was_calm
                within_s = random.uniform(0, 0.02) if hurries else _PATIENCE_S
                status, answer = await request(
                    self.world, "POST", path, body, headers, within_s=within_s
                )
            except Lost:
                if "idempotency-key" not in headers:
                    return  # a repetition without a key could append the request twice
            else:
                if 200 <= status < 300:
                    self._acknowledged(marker, path, answer)
                    return
                if status != 503 or was_calm:
                    raise Broken(f"{marker} was answered with {status}: {answer}")
            await asyncio.sleep(random.uniform(*_RETRY_S))

    def _written(self, operations: list[dict[str, Any]], marker: str) -> tuple[str, bytes, str]:
        """Return the path, the body and the content type of a request."""
        kind = self.world.random.random()
        if kind < 0.25:
            return "/changes", json.dumps({"data": {"of": marker}}).encode(), _JSON
        for at, operation in enumerate(operations):
            operation["data"] = {"of": marker, "at": at}
        if kind < 0.5:
            lines = "".join(f"{json.dumps(each)}\n" for each in operations)
            return "/ops", lines.encode(), "application/x-ndjson"
        return "/ops", json.dumps(operations).encode(), _JSON

    def _acknowledged(self, marker: str, path: str, answer: Any) -> None:
        if path == "/changes":
            number = int(answer["_id"])
            places = [List.place(number)]
        else:
            places = [Place.of(text).at for text in answer["ids"]]
        truth, pages = self.world.truth, {page for page, _ in places}
        self.world.machine.note(self.name, "acknowledged", marker, places)
        if pages != {truth.of_marker.get(marker)} and not all(map(truth.is_lost, pages)):
            raise Broken(f"{marker} was acknowledged at {places} without being there")
        known = self.world.acknowledged.setdefault(marker, places)
        if known != places and not truth.is_lost(known[0][0]):
            raise Broken(f"{marker} was answered with {known} and with {places}")


async def post_last(world: World) -> None:
    """Post an operation for every filter, when nothing fails any more."""
    producer = next(each for each in world.clients if isinstance(each, Producer))
    for kind in TYPES:
        last = {"type": kind, "id": "last", "parents": list(PARENTS)}
        for event in ("update", "delete", "update"):
            await producer.post([{"event": event, **last}])


class Reader(Client):
    """A reader with a cursor. It must get a `reset` if it has seen lost pages, and only then."""

    def __init__(self, world: World, name: str) -> None:
        random = world.random
        self.consumer = self._new(world, name)
        self.session: Session | None = None
        self.was_lost = False  # its cursor is of the lost pages: `reset` must come first
        self._stay_s = random.choice((1.0, 10.0, 100.0))
        super().__init__(world, name)

    @staticmethod
    def _new(world: World, name: str) -> Consumer:
        wanted, careful = world.random.choice(FILTERS), world.random.random() < 0.5
        return Consumer(name, world.truth, wanted, "0", careful=careful)

    @property
    def filters(self) -> dict[str, list[str]]:
        wanted = self.consumer.wanted
        pairs = (("types", wanted.types), ("parents", wanted.parents))
        return {name: sorted(values) for name, values in pairs if values is not None}

    def begin(self) -> Session:
        """Return a new session from the consumer's cursor."""
        session = self.session = Session(self.consumer, lambda: self.world.floor)
        session.starts(self.consumer.cursor)
        return session

    def restored(self) -> None:
        cursor = self.consumer.cursor
        if len(cursor) == 24 and self.world.truth.is_lost(Place.of(cursor).page):
            self.was_lost = True

    def event(self, id: str, name: str, data: dict[str, Any]) -> None:
        assert self.session is not None
        self.events += 1
        self.world.machine.note(self.name, name, id)
        known = self.session.high is not None and len(self.consumer.cursor) == 24
        if name == RESET:
            if known and not self.was_lost:
                raise Broken(f"{self.name}: `reset` after {self.consumer.cursor}, without a loss")
            self.was_lost = False
            self.world.faults.saw("reset was told")
        elif self.was_lost:
            raise Broken(f"{self.name} was not told that {self.consumer.cursor} is lost")
        data.pop("ref", None)  # see `operators.Settings`
        if data.pop("erase", None):
            del data["data"]
        data.pop("erased", None)
        self.session.event(id, name, data)
        self.consumer.objects = {
            key: at for key, at in self.consumer.objects.items() if key[0] != _CHANGE
        }
        self.consumer.cursor = id

    def is_done(self) -> bool:
        high, log = self.session.high if self.session else None, self.world.truth
        if high is None or self.was_lost:
            return False
        return log.missed(high, (log.frontier + 1, 0), self.consumer.wanted) is None

    def check(self) -> None:
        if self.session is None:
            raise Broken(f"{self.name} is not connected")
        self.session.complete()
        self.consumer.check()


class EventStream(Reader):
    """Reads SSE."""

    async def use(self) -> None:
        query = {name: ",".join(values) for name, values in self.filters.items()}
        session = self.begin()
        headers = [*self.world.headers, (b"accept", b"text/event-stream")]
        if self.consumer.cursor:
            headers.append((b"last-event-id", self.consumer.cursor.encode()))
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/ops"}
        scope["headers"], scope["query_string"] = headers, urlencode(query).encode()
        wire = Wire(self.world, scope, {"type": "http.request", "body": b""})
        machine, text = self.world.machine, ""
        end_us = machine.now_us + int(self._stay_s * 1e6)
        try:
            while self.world.is_calm or machine.now_us < end_us:
                try:
                    message = await wire.receive(_IDLE_S)
                except TimeoutError:
                    raise Broken(f"{self.name}: a stream says nothing for {_IDLE_S} s") from None
                if message.get("status", 200) != 200:
                    self.world.machine.note(self.name, "is refused", message["status"])
                    return
                text += message.get("body", b"").decode()
                whole, found, text = text.rpartition("\n\n")
                for id, name, data in sse_blocks(_without_comments(whole + found)):
                    self.event(id, name, data)
        finally:
            if self.session is session:
                self.session = None
            wire.cut()


def _without_comments(text: str) -> str:
    blocks = text.split("\n\n")
    kept = ["\n".join(line for line in block.split("\n") if line[:1] != ":") for block in blocks]
    fields = [
        "\n".join(line for line in block.split("\n") if line[:6] != "retry:") for block in kept
    ]
    return "".join(f"{block}\n\n" for block in fields if block)


class Socket(Reader):
    """Reads by WebSocket."""

    async def use(self) -> None:
        session = self.begin()
        scope = {"type": "websocket", "path": "/ws", "headers": self.world.headers}
        wire = Wire(self.world, scope, {"type": "websocket.connect"})
        cursor = self.consumer.cursor
        ask: dict[str, Any] = {"action": "resume", "cursor": cursor}
        if len(cursor) != 24:
            ask = {"action": "subscribe", "from": cursor}
        if self.world.key is not None:
            ask["password"] = self.world.key.encode()
        self._say(wire, feed="main", **ask, **self.filters)
        machine = self.world.machine
        end_us = machine.now_us + int(self._stay_s * 1e6)
        try:
            while self.world.is_calm or machine.now_us < end_us:
                try:
                    message = await wire.receive(_PATIENCE_S)
                except TimeoutError:
                    self._say(wire, action="ping")
                    message = await self._pong(wire)
                if message["type"] == "websocket.close":
                    return
                if "text" in message:
                    self._hear(json.loads(message["text"]))
        finally:
            if self.session is session:
                self.session = None
            wire.cut()

    async def _pong(self, wire: Wire) -> MutableMapping[str, Any]:
        try:
            return await wire.receive(_PATIENCE_S)
        except TimeoutError:
            if self.world.is_calm:
                raise Broken(f"{self.name}: no answer to a ping") from None
            raise Lost from None

    def _say(self, wire: Wire, **message: Any) -> None:
        wire.send({"type": "websocket.receive", "text": json.dumps(message)})

    def _hear(self, message: dict[str, Any]) -> None:
        session = self.session
        assert session is not None
        if message.get("reply") == "subscribed" and session.high is None:
            session.starts(message["cursor"])
        if "message" in message or "error" in message:
            self.world.machine.note(self.name, "is refused", message)
            raise Lost
        if message.get("reply") == "pong" and message["state"] == "connected":
            raise Lost
        for event in message.get("events", ()):
            self.event(event["id"], event["event"], event.get("data", {}))
        if message.get("cursor") and "events" in message:
            session.cursor(message["cursor"])
            self.consumer.cursor = message["cursor"]


class List(Client):
    """Reads changes with a long poll."""

    since = 0
    was_lost = False

    async def use(self) -> None:
        random = self.world.random
        limit, block = random.choice((1, 5, 100)), random.choice((0, 5, 20))
        query = f"since={self.since}&limit={limit}&block={block}"
        status, found = await request(self.world, "GET", f"/changes?{query}")
        if status != 200:
            self.world.machine.note(self.name, "is refused", status, found)
            return
        if found.get("lost", False) != self.was_lost:
            raise Broken(f"{self.name}: lost is {found.get('lost')} after {self.place(self.since)}")
        if self.was_lost:
            self.since, self.was_lost = 0, False
            self.world.faults.saw("loss was listed")
            return
        self.events += len(found["changes"])
        last, to = self.place(self.since), self.place(int(found["next"]))
        listed = [self.place(int(each["_id"])) for each in found["changes"]]
        floor = (self.world.floor, 0)
        expected = [op.at for op in self.world.truth.ops if last < op.at <= to and op.at >= floor]
        if [at for at in listed if at >= floor] != expected:
            raise Broken(f"{self.name}: {listed} after {last} up to {to}, should be {expected}")
        self.since = int(found["next"])

    @staticmethod
    def place(id: int) -> tuple[int, int]:
        return id >> _SLOT_BITS, id & (1 << _SLOT_BITS) - 1

    def restored(self) -> None:
        self.was_lost = self.was_lost or self.world.truth.is_lost(self.place(self.since)[0])

    def is_done(self) -> bool:
        return self.world.truth.ops[-1].at <= self.place(self.since)

    def check(self) -> None:
        if not self.is_done():
            raise Broken(f"{self.name} is at {self.place(self.since)}")


class Operator(Client):
    """Requests what operators and scrapers do."""

    paths = ("/metrics", "/status", "/health", "/feeds/main/sums", "/feeds/main/objects")

    async def use(self) -> None:
        random = self.world.random
        await request(self.world, "GET", random.choice(self.paths), is_json=False)
        await asyncio.sleep(random.choice((0.01, 1, 5)))


class Worker(Client):
    """Takes the lease of a named consumer, and crashes; then another worker must get it in time.

    Its name is that of the worker; the workers of a world share the consumer.
    """

    path = "/feeds/main/consumers/c"

    holds = 0

    async def use(self) -> None:
        world, random = self.world, self.world.random
        body = json.dumps({"worker": f"{self.name}.{self.holds}"}).encode()
        began_us = world.machine.now_us
        world.leasing.add(self.name)
        try:
            status, _ = await request(world, "POST", f"{self.path}/lease", body)
        except Lost:
            world.leased_us = world.machine.now_us  # the lease may be taken all the same
            raise
        finally:
            world.leasing.discard(self.name)
        if status == 404:
            await request(world, "PUT", self.path, b"{}")
        elif status == 200:
            world.leased_us = world.machine.now_us
            self.holds += random.random() < 0.5  # a new process does not know the lease
            world.faults.saw("lease was taken")
        elif status == 409 and not world.leasing and began_us - world.leased_us > _LEASE_US:
            raise Broken(f"{self.name} gets no lease since {world.leased_us}")
        await asyncio.sleep(random.uniform(1, 20))


class Forger(Client):
    """Posts with a token that the server has to ask its issuer about."""

    async def use(self) -> None:
        token = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {_FORGED}".encode())]
        headers = {"content-type": "application/json"}
        status, _ = await request(self.world, "POST", "/ops", b"[]", headers, only=token)
        if status not in (401, 503):
            raise Broken(f"a forged token was answered with {status}")
        await asyncio.sleep(self.world.random.uniform(1, 10))


def begin(world: World) -> list[Client]:
    """Return the clients of a run."""
    random = world.random
    assert OWNER.get() is None and copy_context() is not None
    made: list[Client] = [Producer(world, f"p{at}") for at in range(random.randint(1, 3))]
    made += [EventStream(world, f"s{at}") for at in range(random.randint(1, 2))]
    made += [Socket(world, f"w{at}") for at in range(random.randint(1, 2))]
    from tests.simulation.server import operators, owners

    made += [Forger(world, "f0"), operators.Guest(world, "g0")] if world.key else []
    made += [operators.Corrector(world, "x0"), operators.Settings(world, "t0")]
    made += [operators.HookOwner(world, "h0")]
    made += [operators.Eraser(world, f"e{at}") for at in range(2 if world.erasures else 0)]
    made += [owners.FeedOwner(world, f"n{at}") for at in range(2 if world.owners else 0)]
    made += [Worker(world, f"c{at}") for at in range(2)]
    return [*made, List(world, "l0"), Operator(world, "o0")]
