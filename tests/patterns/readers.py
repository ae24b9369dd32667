"""Every kind of consumer, with one interface: `read` returns the next messages, by number."""

from __future__ import annotations

import json
from typing import Protocol

from tests.simulation.consumer import sse_blocks
from tests.unit.core.consumers.consumer_scene import ConsumerScene
from tests.unit.core.scene import FEED
from tidings.core.changeagent.changes import place_of
from tidings.core.changeagent.list import Query
from tidings.core.consumers import consumer as consumers
from tidings.core.model.cursors import START
from tidings.core.model.operations import parse_line


class Reader(Protocol):
    def read(self, most: int = 1_000) -> list[int]:
        """Return the next messages, handled and acknowledged; a new connection each time."""
        ...


class Stream:
    """Server-Sent Events, resumed after the last one."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed, self.cursor = feed, START.encode()

    def read(self, most: int = 1_000) -> list[int]:
        stream = self.feed.scene.streamer.open(FEED, self.cursor)
        text, there = "", False
        while not there:
            chunk = stream.next()
            text, there = text + chunk.text, chunk.at_frontier
        told = [block for block in sse_blocks(text) if block[1] not in ("live", "reset")][:most]
        self.cursor = told[-1][0] if told else self.cursor
        return [int(data["id"]) for _, _, data in told]


class Socket:
    """A WebSocket that resumes after the last event and is then live."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed, self.cursor, self.count = feed, START.encode(), 0

    def read(self, most: int = 1_000) -> list[int]:
        scene = self.feed.scene
        self.count += 1
        connection = scene.connect(f"c{self.count}")
        scene.say(connection, action="resume", cursor=self.cursor)
        scene.replayer.run(connection)
        found = [each for heard in scene.heard(connection) for each in heard.get("events", ())]
        told = [event for event in found if "data" in event][:most]
        self.cursor = told[-1]["id"] if told else self.cursor
        return [int(event["data"]["id"]) for event in told]


class Changes:
    """Lists of `/changes`, each after the previous one."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed, self.since, self.lister = feed, 0, feed.scene.lister()

    def read(self, most: int = 1_000) -> list[int]:
        found = self.lister.list(FEED, Query(since=self.since, limit=most))
        self.since = found.next
        places = [place_of(json.loads(entry)["_id"]) for entry in found.entries]
        numbers = {(each.page, each.slot): at for at, each in enumerate(self.feed.places)}
        return [numbers[place] for place in places]


class Named:
    """A named consumer, with another worker each time."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed = feed
        feed.register()

    def read(self, most: int = 1_000) -> list[int]:
        session = self.feed.consumers.lease(FEED, "c0", "w")
        found: list[int] = []
        consumer = session.consumer
        while len(found) < most and (entry := self.feed.view.upcoming(consumer)):
            found.append(int(parse_line(entry.line).id))
            consumer = self.feed.view.advance(consumers.ack_entries(consumer, [entry.place]))
        self.feed.ack(session, through=found[-1] if found else None)
        return found


class State:
    """The follower `state`: its pages are in the state, in any order within its buckets."""

    def __init__(self, feed: ConsumerScene) -> None:
        self.feed, self.known = feed, set[str]()

    def read(self, most: int = 1_000) -> list[int]:
        self.feed.scene.project()
        fresh = self.feed.scene.rows().keys() - self.known
        self.known |= fresh
        return sorted(int(key.rsplit("/", 1)[1]) for key in fresh)


CLIENTS = (Stream, Socket, Changes, Named)
EVERYBODY = (*CLIENTS, State)
