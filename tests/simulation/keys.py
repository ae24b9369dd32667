"""Keys that are revoked while clients are connected with them (PROTOCOL 17.7), and keys that may
post to a part of the feed (17.5).

Some clients use keys. An operator sometimes revokes one, and sometimes crashes in between; then
it is done again. A process caches keys, and the profile in which endings are written, for some
seconds. No process may send an operation that was committed later than the promise allows,
however long the process was suspended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from tests.fakes import MemoryKeys, MemoryProfiles
from tests.simulation.functions import FEED
from tests.simulation.model import Broken, Op, Place, Wanted
from tests.simulation.producer import PARENTS, TYPES, Producer
from tests.simulation.sockets import SocketClient
from tidings.core import limits
from tidings.core.auth.guard import Credential, Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyIssuer, PresentedKey, digest_of
from tidings.core.errors import OutsideKey
from tidings.core.model.filters import EVERYTHING, Filter

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World
    from tidings.core.settings.profiles import Profile

RATES: Final = {
    "key_ends": 0.8,  # at each occasion
    "stale_key": 0.5,  # a process remembers a key from before
    "stale_ending": 0.5,  # and the profile, likewise
    "slow": 0.02,  # more often than elsewhere: between the check and the send
}
# Clients stay connected, so that some can be disconnected. A profile from before removed parents
# were kept would contain no ending, regardless of its age.
_SELDOM: Final = {
    **dict.fromkeys(("absent", "vanish", "stale_profile"), 0.0),
    **{"hang_up": 0.01, "unsubscribe": 0.1},
}
LEADS_TO: Final = (
    *("a key was revoked", "key_ended was told", "a revoked key was refused"),
    *("a bounded key posted", "a bounded key was refused"),
)
_PROMISED_MS: Final = 5_000
_CLIENTS: Final = 4
_EVERY_MS: Final = (500, 8_000)
_REVOKE_S: Final = 30
_AGAIN_MS: Final = 2_000
_SECRET: Final = "s" * 32
_DIGITS: Final = 24
_BOUND: Final = Wanted(types=frozenset(TYPES[:1]), parents=frozenset(PARENTS[:2]))
_WITHIN: Final = 0.8
_AT_MOST: Final = 2  # of a request

T = TypeVar("T")


class _Remembered(Generic[T]):
    """A stored value with its time, for a process that read it up to *age_ms* ago."""

    def __init__(self, world: World, fault: str, age_ms: int) -> None:
        self._world, self._fault, self._age_ms = world, fault, age_ms
        self._was: list[tuple[int, T]] = []

    def put(self, value: T) -> None:
        self._was.append((self._world.scheduler.now_ms, value))

    def known(self, standing: T) -> T:
        if not self._world.faults.strikes(self._fault):
            return standing
        read_ms = self._world.scheduler.now_ms - self._world.random.uniform(0, self._age_ms)
        return next((value for at_ms, value in reversed(self._was) if at_ms <= read_ms), standing)


class KnownKeys(MemoryKeys):
    """The keys *stored*, as known to the processes that admit clients."""

    def __init__(self, world: World, stored: MemoryKeys) -> None:
        self._world, self._stored, self._save = world, stored, stored.save
        self._read: dict[str, _Remembered[Key]] = {}
        stored.save = self.save  # type: ignore[method-assign]

    def key(self, feed: str, name: str) -> Key | None:
        standing = self._stored.key(feed, name)
        return self._read[name].known(standing) if standing else None

    def save(self, feed: str, key: Key) -> bool:
        done = self._save(feed, key)
        if done and (standing := self._stored.key(feed, key.id)):
            made = _Remembered[Key](self._world, "stale_key", limits.KEY_AGE_MS)
            self._read.setdefault(key.id, made).put(standing)
        return done


class KnownProfiles(MemoryProfiles):
    """Likewise."""

    def __init__(self, world: World, stored: MemoryProfiles) -> None:
        self._stored, self._save = stored, stored.save
        self._read = _Remembered["Profile"](world, "stale_ending", limits.PROFILE_AGE_MS)
        self._read.put(stored.profile(FEED))
        stored.save = self.save  # type: ignore[method-assign]

    def profile(self, feed: str) -> Profile:
        return self._read.known(self._stored.profile(feed))

    def save(self, feed: str, profile: Profile) -> bool:
        done = self._save(feed, profile)
        self._read.put(self._stored.profile(feed))
        return done


@dataclass
class Office:
    """Creates keys and revokes them. *revoking* are those with a revocation in progress, *ended_ms*
    says when it was done, *committed_ms* when each page was.
    """

    world: World
    keys: MemoryKeys
    profiles: MemoryProfiles
    revoking: set[str] = field(default_factory=set)
    ended_ms: dict[str, int] = field(default_factory=dict)
    committed_ms: dict[int, int] = field(default_factory=dict)

    def new_key(self, role: Role = Role.READ, bound: Filter = EVERYTHING) -> PresentedKey:
        given = PresentedKey(self.world.machine.new_id()[-ID_LENGTH:], _SECRET)
        made = Key(given.id, digest_of(given.secret), frozenset({role}), bound)
        assert self.keys.save(FEED, made)
        return given

    def revoke(self, name: str) -> None:
        """Again and again, until it is done."""
        self.revoking.add(name)

        def body(process: Process) -> None:
            stores = process.through("keys", self.keys), process.through("profiles", self.profiles)
            KeyIssuer(*stores, process.clock).revoke(FEED, name)
            self.ended_ms.setdefault(name, self.world.scheduler.now_ms)
            self.world.faults.saw("a key was revoked")

        while name not in self.ended_ms:
            self.world.machine.start("revoke", _REVOKE_S, body)
            self.world.scheduler.sleep(_AGAIN_MS)

    def record_commits(self) -> None:
        """Note when each page is committed."""
        written = self.world.model.written

        def noted(number: int, lines: list[str], at_ms: int) -> None:
            written(number, lines, at_ms)
            self.committed_ms.setdefault(number, self.world.scheduler.now_ms)

        self.world.model.written = noted  # type: ignore[method-assign]

    def check_told(self, who: str, key: str, page: int) -> None:
        ended_ms = self.ended_ms.get(key)
        if ended_ms is None:
            return
        late_ms = self.committed_ms[page] - ended_ms
        if late_ms > _PROMISED_MS:
            raise Broken(f"{who} was told page {page}, {late_ms:,} ms after its key was revoked")


class KeyClient(SocketClient):
    """Shows a key; once that was revoked, mostly another one with its next subscription."""

    def __init__(self, world: World, name: str, office: Office) -> None:
        super().__init__(world, name)
        self.office, self._key = office, office.new_key()

    @property
    def key(self) -> str:
        return self._key.id

    def _shows(self) -> dict[str, Any]:
        if self.key in self.office.ended_ms and self.world.random.random() < 0.7:
            self._key = self.office.new_key()
        return {"password": self._key.encode()}

    def _hear(self, frame: str) -> None:
        super()._hear(frame)
        code = json.loads(frame).get("error", {}).get("code")
        if code == "key_ended":
            self.world.faults.saw("key_ended was told")
        if code == "wrong_key":
            self.world.faults.saw("a revoked key was refused")

    def _events(self, message: dict[str, Any]) -> None:
        pages = map(self._page_of, message["events"]) if self.session else ()
        for page in filter(None, pages):
            self.office.check_told(self.name, self.key, page)
        super()._events(message)

    def _page_of(self, event: dict[str, Any]) -> int:
        """Return the page of the operation; 0 if the event does not contain it."""
        marker = event.get("data", {}).get("data", {}).get("of")
        if marker:
            return self.world.model.of_marker[marker]
        place = Place.of(event["id"]) if len(event["id"]) == _DIGITS else None
        return place.page if place and not place.replicates else 0


class BoundedProducer(Producer):
    """Posts with a key that has a bound, a part of it outside (17.5)."""

    def __init__(self, world: World, name: str, office: Office) -> None:
        super().__init__(world, name)
        self._key = office.new_key(Role.INGEST, Filter(types=_BOUND.types, parents=_BOUND.parents))

    def _shows(self) -> Credential | None:
        return Credential(self._key.encode())

    def _operations(self) -> list[dict[str, Any]]:
        """Return few operations, most of them within the key, so that the stored rows decide."""
        operations = super()._operations()[:_AT_MOST]
        if self.world.random.random() < _WITHIN:
            for operation in operations:
                operation["type"] = min(_BOUND.types or ())
                operation["parents"] = [self.world.random.choice(PARENTS[:2])]
        return operations

    def check(self) -> None:
        """Check that each of its operations, and the row before its page, is within the key."""
        refused = self.world.machine.failures[OutsideKey.__name__]
        self.world.faults.saw("a bounded key was refused", refused)
        latest: dict[tuple[str, str], Op] = {}
        pages = groupby(self.world.model.ops, lambda op: op.at[0])
        for _, page in pages:
            ops = list(page)
            for op in ops if ops[0].marker.startswith(f"{self.name}.") else ():
                before = latest.get(op.key)
                stood = before is None or before.event == "delete" or _BOUND.matches(before)
                if not (stood and _BOUND.matches(op)):
                    raise Broken(f"{self.name} changed {before} by {op}, outside of its bound")
                self.world.faults.saw("a bounded key posted")
            latest |= {op.key: op for op in ops}


@dataclass
class Bearers:
    """The clients that use keys."""

    clients: Sequence[KeyClient]
    producer: BoundedProducer


def begin(world: World) -> Bearers:
    """Add the clients."""
    world.faults.add(RATES | _SELDOM, LEADS_TO)
    world.machine.stay_warm.clear()  # the cached keys of a warm process are `KnownKeys`
    functions = world.functions
    profiles, keys = functions.profiles, MemoryKeys()
    functions.profiles, functions.keys = KnownProfiles(world, profiles), KnownKeys(world, keys)
    office = Office(world, keys, profiles)
    office.record_commits()
    clients = [KeyClient(world, f"k{at}", office) for at in range(_CLIENTS)]
    world.scheduler.spawn("operator", lambda: _operate(world, office, clients))
    return Bearers(clients, BoundedProducer(world, "b", office))


def _operate(world: World, office: Office, clients: Sequence[KeyClient]) -> None:
    while True:
        world.sleep_through_lull()
        world.scheduler.sleep(world.random.uniform(*_EVERY_MS))
        client = world.random.choice(clients)
        if client.key not in office.revoking and world.faults.strikes("key_ends"):
            office.revoke(client.key)


def check(world: World, bearers: Bearers) -> None:
    """At rest, check that no client is connected by a key that was revoked."""
    bearers.producer.check()
    for client in bearers.clients:
        connection = world.stores.connections.get(client.connection_id)
        if connection is not None and connection.admission.key in client.office.ended_ms:
            raise Broken(f"{client.name} is connected by a key that was revoked")
