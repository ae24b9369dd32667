"""The plan of a load, and a ledger of the events that consumers receive.

The first consumer that receives an operation defines its place in the order; every other consumer
must receive the same operation at the same place. Together with the answers to producers this finds
each operation that was lost, repeated, moved or altered, during the run and in constant time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidings.client.events import Event

_EVENTS = ("insert", "update", "update", "update", "delete")
_FRAME_BYTES = 110  # of an operation without its padding
_SPARE = 10_000  # entries that all consumers received, before they are dropped together
_TOLD = 20  # violations kept as text; all are counted


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses of a feed. The streams of a deployed stage have their own."""

    url: str
    stream_url: str = ""
    ws_url: str | None = None
    feed: str = "main"
    read_password: str = field(default="", repr=False)
    ingest_password: str = field(default="", repr=False)


RATE = 20.0  # two cores can run all of it at this rate, also on the functions of tests.twin


@dataclass(frozen=True, slots=True)
class Plan:
    """Send *rate* operations a second in requests of *batch*, by *producers* in turn.

    *churn* consumers a minute leave and come back. The objects have a type of this *run* alone.
    """

    run: str
    producers: int = 4
    rate: float = RATE
    batch: int = 1
    consumers: int = 8
    transports: tuple[str, ...] = ("ws", "sse")
    churn: float = 0.0
    duration_s: float = 60.0
    objects: int = 200
    size: int = 250
    seed: int = 1

    @property
    def type(self) -> str:
        return f"load-{self.run}"

    @property
    def requests(self) -> int:
        return max(1, math.ceil(self.rate * self.duration_s / self.batch))

    @property
    def total(self) -> int:
        """Return the number of operations."""
        return self.requests * self.batch

    def due_s(self, serial: int) -> float:
        """Return the seconds from the start at which operation *serial* is due."""
        return serial // self.batch * self.batch / self.rate

    def shares(self, producer: int) -> Iterator[range]:
        """Yield the serials of each request of one producer."""
        for request in range(producer, self.requests, self.producers):
            yield range(request * self.batch, (request + 1) * self.batch)

    def operation(self, serial: int) -> dict[str, Any]:
        """Return operation *serial*, the same each time, to compare it with received events."""
        chance = random.Random(self.seed << 40 | serial)
        pad = "x" * max(0, self.size - _FRAME_BYTES)
        return {
            "event": chance.choice(_EVENTS),
            "type": self.type,
            "id": f"o{chance.randrange(self.objects)}",
            "data": {"serial": serial, "pad": pad},
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation at its place."""

    id: str
    name: str
    data: Mapping[str, Any]
    serial: int


@dataclass(eq=False, slots=True)
class Reader:
    """A consumer's place in the order: the next entry that it is to receive."""

    name: str
    at: int


@dataclass(slots=True)
class Violations:
    """The number of broken promises, and the first few in words."""

    count: int = 0
    told: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.count += 1
        if len(self.told) < _TOLD:
            self.told.append(text)


class Ledger:
    """The order of a run. It begins after *first_id*, from which every consumer starts."""

    def __init__(self, plan: Plan, first_id: str) -> None:
        self.violations = Violations()
        self.objects: dict[str, Entry] = {}
        self.last_id = first_id
        self._plan = plan
        self._entries: list[Entry] = []
        self._base = 0
        self._readers: set[Reader] = set()
        self._heard = bytearray(plan.total)
        self._acked: dict[int, str] = {}  # acknowledged, received by no consumer yet
        self._early: dict[int, str] = {}  # received, not yet acknowledged

    @property
    def end(self) -> int:
        """Return the number of operations in the order."""
        return self._base + len(self._entries)

    def joins(self, name: str) -> Reader:
        """Add a consumer that starts after `last_id`."""
        reader = Reader(name, self.end)
        self._readers.add(reader)
        return reader

    def leaves(self, reader: Reader) -> None:
        """Remove a consumer that will not come back."""
        self._readers.discard(reader)
        self._forget()

    def hears(self, reader: Reader, event: Event) -> int | None:
        """Check *event* against the order; return its serial, None if it has none."""
        if not event.is_operation:
            self.violations.add(f"{reader.name} was told {event.name} in the middle of the log")
            return None
        if reader.at < self.end:
            return self._again(reader, event)
        return self._first(reader, event)

    def acknowledges(self, serials: Sequence[int], ids: Sequence[str]) -> None:
        """Record that a producer received the *ids* of *serials*."""
        if len(serials) != len(ids):
            self.violations.add(f"{len(serials)} operations were answered with {len(ids)} ids")
        for serial, event_id in zip(serials, ids, strict=False):
            early = self._early.pop(serial, None)
            if early is None:
                self._acked[serial] = event_id
            elif early != event_id:
                self.violations.add(f"{serial} was acknowledged as {event_id}, heard as {early}")

    @property
    def unheard(self) -> int:
        """Return the number of acknowledged operations that no consumer has received."""
        return len(self._acked)

    @property
    def behind(self) -> int:
        """Return the distance of the slowest consumer from the end."""
        return self.end - min((each.at for each in self._readers), default=self.end)

    def closes(self) -> None:
        """Count everything that is missing as lost: no more events will arrive."""
        for serial, event_id in self._acked.items():
            self.violations.add(f"{serial} was acknowledged as {event_id} and never heard")
        for reader in self._readers:
            if reader.at < self.end:
                self.violations.add(f"{reader.name} misses the last {self.end - reader.at}")

    def compares(self, state: Mapping[str, int]) -> None:
        """Compare with *state*: the serial of each object's latest operation, by id."""
        wanted = {key: entry.serial for key, entry in self.objects.items()}
        for key in sorted(wanted.keys() | state.keys()):
            if wanted.get(key) != state.get(key):
                self.violations.add(
                    f"{key} is {state.get(key)} in the state and {wanted.get(key)} by the log"
                )

    def _first(self, reader: Reader, event: Event) -> int | None:
        if _place(event.id) <= _place(self.last_id):
            self.violations.add(f"{reader.name} heard {event.id} behind {self.last_id}")
            return None
        serial = self._serial(event)
        if serial is None:
            self.violations.add(f"{event.id} is not as it was posted: {event.data}")
            return None
        if self._heard[serial]:
            self.violations.add(f"{serial} is in the log twice, again as {event.id}")
        self._heard[serial] = 1
        self._append(Entry(event.id, event.name, event.data, serial))
        reader.at = self.end
        if self._acked.pop(serial, event.id) != event.id:
            self.violations.add(f"{serial} was heard as {event.id}, acknowledged otherwise")
        return serial

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.last_id = entry.id
        key = str(entry.data["id"])
        if entry.name == "delete":
            self.objects.pop(key, None)
        else:
            self.objects[key] = entry
        if entry.serial not in self._acked:
            self._early[entry.serial] = entry.id
        self._forget()

    def _again(self, reader: Reader, event: Event) -> int | None:
        entry = self._entries[reader.at - self._base]
        reader.at += 1
        if event.id == entry.id and event.name == entry.name and event.data == entry.data:
            return entry.serial
        self.violations.add(f"{reader.name} heard {event.id} where {entry.id} stands")
        self._realign(reader, event)
        return None

    def _realign(self, reader: Reader, event: Event) -> None:
        """Continue after *event*, so that one mistake is reported once."""
        place = _place(event.id)
        behind = (
            at for at, entry in enumerate(self._entries, self._base) if _place(entry.id) > place
        )
        reader.at = next(behind, self.end)

    def _serial(self, event: Event) -> int | None:
        """Return the serial of *event* if it is an operation of this run in every part."""
        data = event.data.get("data")
        serial = data.get("serial") if isinstance(data, dict) else None
        if not isinstance(serial, int) or not 0 <= serial < self._plan.total:
            return None
        posted = self._plan.operation(serial)
        posted_as = posted.pop("event")
        same = all(event.data.get(key) == value for key, value in posted.items())
        return serial if same and event.name == posted_as else None

    def _forget(self) -> None:
        spare = len(self._entries) - self.behind
        if spare > _SPARE:
            del self._entries[:spare]
            self._base += spare


def _place(event_id: str) -> str:
    """Return page and slot; the second before them has no order (PROTOCOL 5.1)."""
    return event_id[8:]
