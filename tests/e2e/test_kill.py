"""A machine that dies: a whole host killed under load, again and again, over one data folder.

On a twin as well: only there an engine, functions and gateways die with each other.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compat.oplog.wire import PATIENCE_S, until
from tests.conformance.listeners import ReceivedEvent
from tests.e2e import consumers
from tests.e2e.consumers import BEFORE_THE_FIRST, Consumer
from tests.hosts import host
from tidings.server.running import Server

OBJECTS = 40  # few, so that the same object is written by all producers
SEED = 7
HITS = 0.75  # of the kills tear requests at least
END = {"event": "insert", "type": "end", "id": "end"}


@dataclass
class Ledger:
    """The knowledge of the producers. *flying* are requests sent and not yet answered."""

    acked: dict[str, dict[str, Any]] = field(default_factory=dict)
    sent: set[str] = field(default_factory=set)
    flying: set[int] = field(default_factory=set)
    torn: set[int] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    requests_acked: int = 0


@dataclass(frozen=True)
class Load:
    """*acked* requests are acknowledged in each life, at least."""

    kills: int
    producers: int = 3
    consumers: int = 1
    acked: int = 25


@pytest.mark.parametrize(
    ("name", "load"),
    [
        pytest.param("server", Load(10, producers=8, consumers=2), id="server"),
        pytest.param("twin", Load(4), id="twin", marks=pytest.mark.java),
    ],
)
def test_nothing_acknowledged_is_lost_when_everything_is_killed(
    name: str, load: Load, tmp_path: Path
) -> None:
    """Every acknowledged operation is in the log, in the state and at a consumer that resumes;
    unacknowledged ones are there once or not at all.
    """
    play(name, load, tmp_path)


def play(name: str, load: Load, folder: Path) -> int:
    """Kill the host *name* again and again; how many operations were acknowledged, none lost."""
    ledger, choose = Ledger(), random.Random(SEED)
    torn: list[int] = []
    with host(name)(data=folder) as running:
        followers = [
            Consumer(
                consumers.client(running.url, BEFORE_THE_FIRST, ws_url=running.ws_url), _is_end
            )
            for _ in range(load.consumers)
        ]
        producers = [
            threading.Thread(target=_produce, args=[running.url, ledger, number], daemon=True)
            for number in range(load.producers)
        ]
        for producer in producers:
            producer.start()
        for _ in range(load.kills):
            torn.append(_kill_under_load(running, ledger, choose, load.acked))
            running.start()
        until(lambda: ledger.requests_acked >= (load.kills + 1) * load.acked)
        ledger.stop.set()
        for producer in producers:
            producer.join(PATIENCE_S)
        httpx.post(running.url, json=END, timeout=30).raise_for_status()

        heard = [follower.done() for follower in followers]
        log = consumers.log_from(running.url, BEFORE_THE_FIRST, _is_end)
        copied = consumers.replicate(running.url)

    hit = sum(1 for requests in torn if requests)  # a server may have answered all of them just so
    assert hit >= HITS * load.kills, f"kills hit nothing in flight: {torn}"
    _check_log(log, ledger)
    assert all(each == log for each in heard)
    assert copied == consumers.fold(log)
    return len(ledger.acked)


def _check_log(log: list[ReceivedEvent], ledger: Ledger) -> None:
    places = [consumers.place(heard) for heard in log]
    assert places == sorted(set(places))
    written = {heard.id: heard for heard in log}
    for event_id, operation in ledger.acked.items():
        found = written.get(event_id)
        assert found is not None, f"{event_id} was acknowledged and is not in the log"
        assert (found.name, found.data["id"]) == (operation["event"], operation["id"])
        assert found.data["data"] == operation["data"]
    serials = [heard.data["data"]["serial"] for heard in log[:-1]]
    assert len(serials) == len(set(serials)), "an operation was written twice"
    assert set(serials) <= ledger.sent
    assert len(ledger.acked) <= len(serials)


def _kill_under_load(twin: Server, ledger: Ledger, choose: random.Random, acked: int) -> int:
    """Kill the host and all its children at once; how many requests were torn by it."""
    enough = ledger.requests_acked + acked + choose.randint(0, 20)
    until(lambda: ledger.requests_acked >= enough)
    family = _family(twin.pid)
    until(lambda: bool(ledger.flying))
    with ledger.lock:
        flying = set(ledger.flying)
    twin.kill()
    until(lambda: not any(map(_is_running, family)))
    whole = 3 if twin.command == "local" else 0
    assert len(family) > whole, "the engine and the workers were not among those killed"
    until(lambda: flying.isdisjoint(ledger.flying))
    return len(flying & ledger.torn)


def _produce(url: str, ledger: Ledger, number: int) -> None:
    """Post batches one after another; what fails is never sent again."""
    choose = random.Random(SEED + number)
    with httpx.Client(timeout=30) as client:
        for turn in itertools.count():
            if ledger.stop.is_set():
                return
            request = number * 1_000_000 + turn
            batch = [_operation(choose, request, slot) for slot in range(choose.randint(1, 4))]
            with ledger.lock:
                ledger.sent.update(operation["data"]["serial"] for operation in batch)
                ledger.flying.add(request)
            _post(client, url, ledger, request, batch)


def _post(
    client: httpx.Client, url: str, ledger: Ledger, request: int, batch: list[dict[str, Any]]
) -> None:
    try:
        answer = client.post(url, json=batch, headers={"Prefer": "return=representation"})
        ids = answer.json()["ids"] if answer.status_code == 200 else []
        with ledger.lock:
            ledger.acked.update(zip(ids, batch, strict=bool(ids)))
            ledger.requests_acked += bool(ids)
    except httpx.ConnectError:
        time.sleep(0.1)  # no process listens: the host is starting, and needs the machine
    except httpx.HTTPError:
        with ledger.lock:
            ledger.torn.add(request)
    finally:
        with ledger.lock:
            ledger.flying.discard(request)


def _operation(choose: random.Random, request: int, slot: int) -> dict[str, Any]:
    return {
        "event": choose.choice(["insert", "update", "update", "delete"]),
        "type": "thing",
        "id": f"thing {choose.randrange(OBJECTS)}",
        "data": {"serial": f"{request}-{slot}", "request": request},
    }


def _family(pid: int) -> set[int]:
    """*pid* and all its descendants."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue  # it ended while we looked
        parents[int(stat.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found = {pid}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    return found


def _is_running(pid: int) -> bool:
    """Return True if the process exists and is not a zombie that waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _is_end(heard: ReceivedEvent) -> bool:
    return heard.data.get("type") == "end"
