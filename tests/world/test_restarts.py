"""Restart a server to which the proxies of its guide forward: no client gives up, nothing is lost.

`RESTARTS=150 pytest --lane world --timeout 0 tests/world/test_restarts.py` is the long run.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.sync.client import connect

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.wire import PATIENCE_S, until
from tests.world import installing, streams
from tests.world.messages import Client
from tests.world.proxies import every_proxy
from tests.world.streams import Reader
from tests.world.test_http import curl
from tidings.server.running import Server

RESTARTS = int(os.environ.get("RESTARTS", "10"))
UP_S = 1.0  # the longest time between two restarts
POST_EVERY_S = 0.1
NODE = ("node", "--experimental-websocket", "--no-warnings")
SOURCE = installing.ROOT / "clients" / "javascript"
EVENT_STREAM = "text/event-stream"
pytestmark = [
    *(pytest.mark.apache2, pytest.mark.caddy, pytest.mark.haproxy, pytest.mark.nginx),
    *(pytest.mark.npm, pytest.mark.go, pytest.mark.curl),
]


@pytest.fixture(scope="module")
def proxies(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, str]]:
    with every_proxy(tmp_path_factory.mktemp("proxies"), server.port) as urls:
        yield urls


class Producer:
    """Posts to *feed* through *url* until the block ends, each operation once."""

    def __init__(self, url: str, feed: str) -> None:
        self.ids: list[str] = []
        self.answers: Counter[str] = Counter()
        self._place, self._path = urlsplit(url), f"/feeds/{feed}/ops"
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._ends.wait(POST_EVERY_S):
            number += 1
            # A killed server may cut an answer, which then acknowledges nothing.
            with suppress(OSError, http.client.HTTPException):
                self._post(number)

    def _post(self, number: int) -> None:
        """Every other post accepts an event stream, which must not make it one."""
        headers = {"Content-Type": "application/json", "Prefer": "return=representation"}
        if number % 2:
            headers["Accept"] = EVENT_STREAM
        connection = http.client.HTTPConnection(
            self._place.hostname or "", self._place.port, timeout=PATIENCE_S
        )
        try:
            connection.request("POST", self._path, json.dumps(op(f"x{number}")), headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        self.answers[str(answer.status)] += 1
        if answer.status < 300:
            self.ids += json.loads(body)["ids"]


class Clients(Client):
    """The clients in Node.js; *ids* and *ends* are those of each."""

    def __init__(self, folder: Path, feed: str, start: str, urls: Mapping[str, str]) -> None:
        package = folder / "node_modules" / "@tidings" / "client"
        package.parent.mkdir(parents=True)
        package.symlink_to(SOURCE)
        library = installing.node_folder() / "node_modules"
        for name in ("eventsource", "eventsource-parser"):
            (folder / "node_modules" / name).symlink_to(library / name)
        script = folder / "restarts.mjs"
        script.write_bytes((installing.CLIENTS / script.name).read_bytes())
        super().__init__([*NODE, str(script), feed, start, json.dumps(urls)])
        self.ids: dict[str, list[str]] = {
            f"{proxy} {name}": []
            for proxy in urls
            for name in ("eventsource", "@tidings/client ws", "@tidings/client sse")
        }
        self.ends: dict[str, str] = {}

    def take(self, line: str) -> None:
        message: dict[str, Any] = json.loads(line)
        if "id" in message:
            self.ids[message["client"]].append(message["id"])
        else:
            self.ends[message["client"]] = message["end"]


def _readers(stack: ExitStack, feed: str, start: str, urls: Mapping[str, str]) -> dict[str, Reader]:
    go = str(installing.go_program())
    readers = {}
    for proxy, url in urls.items():
        stream = f"{url}feeds/{feed}/ops?lastEventId={start}"
        commands = {
            "go-sse": [go, "tmaxmax-once", stream],
            "tidings tail": streams.tail(url, "--feed", feed, "--from", start),
            "follow": streams.python("ours", stream),
        }
        for name, command in commands.items():
            readers[f"{proxy} {name}"] = stack.enter_context(Reader(command))
    return readers


def test_only_a_stream_is_answered_for_a_server_that_is_away(
    server: Server, proxies: Mapping[str, str], feed: Feed
) -> None:
    """A post that was answered with 200 would count as stored; so would a read of a list."""
    path = f"feeds/{feed.name}/ops"
    accept = ("-H", f"Accept: {EVENT_STREAM}")
    others = [(), ("-d", "[]"), (*accept, "-d", "[]"), ("-I", *accept)]
    server.kill()
    try:
        with ThreadPoolExecutor(len(proxies) * 5) as pool:  # two proxies hold requests for 10 s
            opened = {name: pool.submit(curl, *accept, url + path) for name, url in proxies.items()}
            refused = {
                (name, options): pool.submit(curl, *options, url + path)
                for name, url in proxies.items()
                for options in others
            }
    finally:
        server.start()
    for name, each in opened.items():
        answer = each.result()
        assert (answer.status, answer.body) == (200, b"retry: 2000\n\n"), name
        assert answer.headers["content-type"].partition(";")[0] == EVENT_STREAM
        assert answer.headers["access-control-allow-origin"] == "*"
    statuses = {case: each.result().status for case, each in refused.items()}
    assert {*statuses.values()} <= {502, 503, 504}, statuses


def test_websockets_pass(proxies: Mapping[str, str]) -> None:
    for proxy, url in proxies.items():
        with connect(url.replace("http", "ws", 1) + "ws") as socket:
            socket.send(json.dumps({"action": "subscribe"}))
            assert "subscribed" in json.loads(socket.recv(PATIENCE_S)).values(), proxy


def test_nothing_is_lost_while_the_server_restarts(
    server: Server, proxies: Mapping[str, str], feed: Feed, tmp_path: Path
) -> None:
    """Every other time it is killed. Each client receives each operation once, in order."""
    (start,) = feed.post(op("first"))
    chance = random.Random(1)
    with ExitStack() as stack:
        node = stack.enter_context(Clients(tmp_path, feed.name, start, proxies))
        readers = _readers(stack, feed.name, start, proxies)
        received: dict[str, Sized] = {
            **node.ids,
            **{name: reader.events for name, reader in readers.items()},
        }
        with ExitStack() as posting:
            producers = {
                proxy: posting.enter_context(Producer(url, feed.name))
                for proxy, url in proxies.items()
            }
            until(lambda: node.ends or all(received.values()))
            for number in range(RESTARTS):
                (server.kill if number % 2 else server.stop)()
                server.start()
                time.sleep(chance.uniform(0, UP_S))
            counts = {proxy: len(each.ids) for proxy, each in producers.items()}
            until(lambda: all(len(each.ids) > counts[name] for name, each in producers.items()))
        with feed.listening(start) as listener:
            feed.post(op("first", "delete"))
            expected = [block.id for block in listener.until("delete")]

        def ends() -> dict[str, object]:
            states = {name: each.states for name, each in readers.items() if each.states}
            return {**node.ends, **states}

        until(lambda: ends() or all(len(each) >= len(expected) for each in received.values()))
        assert ends() == {}
        ids = {**node.ids, **{name: reader.ids for name, reader in readers.items()}}
    assert {name: each for name, each in ids.items() if each != expected} == {}
    for proxy, producer in producers.items():
        assert {*producer.ids} <= {*expected}, proxy
        assert producer.ids and {*producer.answers} <= {"200", "502", "503", "504"}, (
            producer.answers
        )
