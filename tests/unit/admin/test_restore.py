"""The restore drill: each table is restored to its own point in time, and every earlier consumer
ends equal to the state.

On a twin: only the tables of a stage are restored separately; a server has one file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from mypy_boto3_dynamodb import DynamoDBClient

from tests.compat.oplog.feed import Feed, op
from tests.conformance.listeners import ReceivedEvent, SseListener
from tests.e2e.consumers import BEFORE_THE_FIRST, Objects
from tests.twin import Twin, dynamodb_local
from tests.twin.store import create_tables, table_name, tables_client
from tidings.admin.archive_command import page_of
from tidings.client.cli.main import main
from tidings.client.reconnect import follow

pytestmark = pytest.mark.java

# The point in time (1, 2 or 3) to which the log, the state and the counters are restored.
MOMENTS = {
    "all-at-once": (2, 2, 2),
    "log-last": (3, 1, 2),
    "log-first": (1, 2, 3),
    "state-last": (2, 3, 1),
    "counters-last": (2, 1, 3),
}
SAVED = ("log", "state", "control")
LAST = 5  # the posts after the restore
END = op("end")
END_KEY = ("video", "end")

Items = list[dict[str, Any]]


@dataclass
class Drill:
    """The events that consumers of one feed received in order, and the results of the drill."""

    name: str
    told: list[tuple[str, Any]] = field(default_factory=list)  # id and operation
    anew: list[tuple[str, Any]] = field(default_factory=list)  # likewise, after the restore
    said: dict[str, Any] = field(default_factory=dict)
    changes: list[int] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        """Return all ids but the last one, as no event follows that one."""
        return [BEFORE_THE_FIRST, *(event_id for event_id, _ in [*self.told, *self.anew][:-1])]

    def held(self, upto: str) -> Objects:
        """Return the objects of a consumer that has handled everything up to this id."""
        objects: Objects = {}
        for event_id, operation in self._log(upto):
            if event_id > upto:
                break
            _take(objects, operation["event"], operation)
        return objects

    def kept(self) -> set[tuple[str, str]]:
        """Return the objects that were new in the restored part of the log, and were not
        deleted."""
        return {("video", f"other-{moment}") for moment in range(1, self.said["kept"] // 3 + 1)}

    def _log(self, upto: str) -> list[tuple[str, Any]]:
        """Return the log that a consumer with this id received."""
        if upto not in dict(self.anew):
            return self.told
        return [each for each in self.told if page_of(each[0]) <= self.said["kept"]] + self.anew


def _take(objects: Objects, name: str, data: Any) -> None:
    if name == "reset":
        objects.clear()
    elif name == "delete":
        objects.pop((data["type"], data["id"]), None)
    elif name != "live":
        objects[data["type"], data["id"]] = {
            key: value for key, value in data.items() if key not in ("event", "timestamp")
        }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start an engine that outlives the twins on it."""
    log = tmp_path_factory.mktemp("engine") / "log"
    log.touch()
    with asyncio.Runner() as runner:
        running = runner.run(dynamodb_local.start(port=0, data=None, log=log))
        try:
            yield running.url
        finally:
            runner.run(running.stop())


@pytest.fixture(scope="module")
def drills(store: str) -> Iterator[tuple[Twin, dict[str, Drill]]]:
    """Yield every feed after its tables were restored, and further posts."""
    twin = Twin("--endpoint-url", store, "--feeds", ",".join(MOMENTS))
    found = {name: Drill(name) for name in MOMENTS}
    client = tables_client(store)
    saved: dict[int, dict[str, Items]] = {}
    with twin:
        for drill in found.values():
            _consume(twin, drill.name, "create", "copier")
        for moment in (1, 2, 3):
            _post_all(twin, found, moment)
            for name in MOMENTS:
                _consume(twin, name, "mark", "copier", "now", "--why", "as if it had written all")
            saved[moment] = {table: _items(client, table) for table in SAVED}
        _post_all(twin, found, 4)
        for drill in found.values():
            drill.changes = _changes(twin, drill.name)
        twin.stop()
        _put_back(client, saved)
        for drill in found.values():
            drill.said = _restore(store, drill)
        twin.start()
        _post_all(twin, found, LAST)
        yield twin, found


def _post_all(twin: Twin, drills: dict[str, Drill], moment: int) -> None:
    for drill in drills.values():
        _post(twin, drill, moment)
    for drill in drills.values():
        _settle(twin, drill)


def _post(twin: Twin, drill: Drill, moment: int) -> None:
    """Post three pages: a new object, a changed one, a deleted one."""
    feed = Feed(twin.port, drill.name)
    pages = [
        [op(f"new-{moment}"), op(f"gone-{moment}")],
        [op("same", "update", parents=[f"moment/{moment}"]), op(f"other-{moment}")],
        [op(f"gone-{moment}", "delete"), *([op("new-1", "delete")] if moment == 4 else [])],
    ]
    for operations in [*pages, [END]] if moment == LAST else pages:
        ids = feed.post(*operations)
        kept = [{"parents": [], **each} for each in operations]
        (drill.anew if moment == LAST else drill.told).extend(zip(ids, kept, strict=True))


def _settle(twin: Twin, drill: Drill) -> None:
    """Return when all that was posted is in the state."""
    last = page_of((drill.anew or drill.told)[-1][0])
    Feed(twin.port, drill.name).handled(last)


def _changes(twin: Twin, feed: str) -> list[int]:
    url = f"{twin.url}feeds/{feed}/changes"
    return [each["_id"] for each in httpx.get(url, params={"limit": 1000}).json()["changes"]]


def _consume(twin: Twin, feed: str, *words: str) -> None:
    done = CliRunner().invoke(main, ["consumers", *words, "--url", twin.url, "--feed", feed])
    assert done.exit_code == 0, done.output


def _items(client: DynamoDBClient, table: str) -> Items:
    pages = client.get_paginator("scan").paginate(TableName=table_name(table), ConsistentRead=True)
    return list(chain.from_iterable(page["Items"] for page in pages))


def _put_back(client: DynamoDBClient, saved: dict[int, dict[str, Items]]) -> None:
    """Tables that hold of each feed what they held at its moments; those of connections none."""
    for name in client.list_tables()["TableNames"]:
        client.delete_table(TableName=name)
    create_tables(client)
    for feed, moments in MOMENTS.items():
        for table, moment in zip(SAVED, moments, strict=True):
            for item in saved[moment][table]:
                if feed in json.dumps(list(item.values()), default=str):
                    client.put_item(TableName=table_name(table), Item=item)


def _restore(store: str, drill: Drill) -> dict[str, Any]:
    """Restore as in the runbook; return the output of the first command."""
    where = ["--feed", drill.name, "--endpoint-url", store]
    heard = drill.told[-1][0]
    done = CliRunner().invoke(main, ["restore", *where, "--heard", heard, "--json"])
    assert done.exit_code == 0, done.output
    rebuilt = CliRunner().invoke(main, ["rebuild", *where, "--max-alien-share", "1"])
    assert rebuilt.exit_code == 0, rebuilt.output
    said: dict[str, Any] = json.loads(done.output)
    return said


def _state(twin: Twin, feed: str) -> Objects:
    objects: Objects = {}
    with closing(SseListener(f"{twin.url}feeds/{feed}/ops", {"lastEventId": "0"}, {})) as listener:
        while (heard := listener.next()).name != "live":
            _take(objects, heard.name, heard.data)
    return objects


def _by_sse(twin: Twin, feed: str, cursor: str, held: Objects) -> Objects:
    url = f"{twin.url}feeds/{feed}/ops"
    with closing(SseListener(url, {}, {"Last-Event-ID": cursor})) as listener:
        return _caught_up(listener.next, held)


def _by_socket(twin: Twin, feed: str, cursor: str, held: Objects) -> Objects:
    events = follow(twin.url, cursor=cursor, feed=feed, ws_url=twin.ws_url)
    return _caught_up(lambda: ReceivedEvent(*attrgetter("id", "name", "data")(next(events))), held)


def _caught_up(hear: Callable[[], ReceivedEvent], held: Objects) -> Objects:
    """Return *held* with all events up to the end; a copy counts in any order, once it is
    `live`."""
    copying = False
    while copying or END_KEY not in held:
        heard = hear()
        copying = heard.name != "live" and (heard.name == "reset" or heard.is_row)
        _take(held, heard.name, heard.data)
    return held


@pytest.mark.parametrize("name", MOMENTS)
def test_whoever_comes_back_ends_equal_to_the_state(
    drills: tuple[Twin, dict[str, Drill]], name: str
) -> None:
    """This holds for every id that was ever sent, and the objects at that id; some use
    WebSockets."""
    twin, found = drills
    drill, state = found[name], _state(twin, name)
    assert state["video", "same"]["parents"] == ["moment/5"]
    assert drill.kept() <= state.keys()
    for event_id in drill.ids[::3]:
        assert _by_sse(twin, name, event_id, drill.held(event_id)) == state, event_id
    for event_id in drill.ids[1::8]:
        assert _by_socket(twin, name, event_id, drill.held(event_id)) == state, event_id


@pytest.mark.parametrize("name", MOMENTS)
def test_no_number_is_told_twice(drills: tuple[Twin, dict[str, Drill]], name: str) -> None:
    """A client of changes, with ids that have no time in them, gets all new changes."""
    twin, found = drills
    drill = found[name]
    assert drill.said["kept"] == 3 * min(MOMENTS[name][0], 3)
    anew = [operation["id"] for _, operation in drill.anew]
    for since in drill.changes[::4]:
        assert _operations_since(twin, name, since)[-len(anew) :] == anew, since


def _operations_since(twin: Twin, feed: str, since: int) -> list[str]:
    url = f"{twin.url}feeds/{feed}/changes"
    answer = httpx.get(url, params={"since": since, "limit": 1000}, timeout=60).json()
    return [change["data"]["id"] for change in answer["changes"]]


@pytest.mark.parametrize("name", MOMENTS)
def test_a_named_consumer_is_sent_what_is_new(
    drills: tuple[Twin, dict[str, Drill]], name: str
) -> None:
    """If it had acknowledged lost events, its position is set back, and the command lists it."""
    twin, found = drills
    shown = httpx.get(f"{twin.url}feeds/{name}/consumers/copier", timeout=60).json()
    assert shown["lag_pages"] >= 4, shown
    ahead = MOMENTS[name][2] > MOMENTS[name][0]
    assert (found[name].said["consumers"] == ["copier"]) is ahead


def test_a_page_that_is_no_number_is_refused(store: str) -> None:
    """Nothing is written before that."""
    where = ["--feed", "all-at-once", "--endpoint-url", store]
    assert CliRunner().invoke(main, ["restore", *where, "--heard", "yesterday"]).exit_code == 2
