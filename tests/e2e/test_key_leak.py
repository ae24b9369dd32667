"""The key-leak drill: a key is leaked, used and revoked, and other clients are unaffected."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.compat.oplog.wire import until
from tidings.client.cli.main import main
from tidings.server.running import Server

PROMISE_S = 5.0  # from the end of the command, as PROTOCOL says
SLACK_S = 30.0  # for a machine that runs other things as well
PATIENCE_S = 180.0
EVERY_S = 0.3  # the interval of posts
READ, INGEST = "the read password", "the ingest password"
Answer = tuple[int, dict[str, Any]]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Closed but for its passwords, as a stage is."""
    folder, options = tmp_path_factory.mktemp("secrets"), []
    for role, password in (("read", READ), ("ingest", INGEST)):
        (folder / role).write_text(password)
        options += [f"--{role}-password-file", str(folder / role)]
    with Server(*options) as running:
        yield running


def keys(host: Server, *words: str) -> str:
    """Return the output of the operator's command."""
    done = CliRunner().invoke(main, ["keys", *words, *host.locator])
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def id_of(key: str) -> str:
    return key.split("_")[1]


def ask(host: Server, method: str, secret: str, body: object = None, path: str = "/ops") -> Answer:
    """Send a request with *secret* by HTTP Basic; leave a stream at once."""
    connection = http.client.HTTPConnection("127.0.0.1", host.port, timeout=PATIENCE_S)
    pair = base64.b64encode(f"browser:{secret}".encode()).decode()
    headers = {"authorization": f"Basic {pair}", "accept": "text/event-stream"}
    sent = None if body is None else json.dumps(body)
    connection.request(method, path, sent, {**headers, "content-type": "application/json"})
    answer = connection.getresponse()
    told = {} if answer.status < 400 else json.loads(answer.read())["error"]
    connection.close()
    return answer.status, told


class Reader(threading.Thread):
    """Reads until it is cut; *heard* are ids of objects, *ended_s* is when it was cut."""

    def __init__(self, host: Server, secret: str) -> None:
        super().__init__(daemon=True)
        self.host, self.secret = host, secret
        self.heard: list[str] = []
        self.said: list[dict[str, Any]] = []
        self.ended_s = 0.0
        self.open = threading.Event()

    def run(self) -> None:
        try:
            self.read()
        finally:
            self.ended_s = time.monotonic()

    def read(self) -> None:
        raise NotImplementedError

    def receives_more(self) -> bool:
        """Return True if some more operations arrive."""
        before = len(self.heard)
        return until(lambda: len(self.heard) > before + 3)


class Streaming(Reader):
    """By Server-Sent Events."""

    def read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.host.port)
        headers = {"accept": "text/event-stream", "authorization": f"Bearer {self.secret}"}
        if not self.secret.startswith("tdk_"):
            pair = base64.b64encode(f":{self.secret}".encode()).decode()
            headers["authorization"] = f"Basic {pair}"
        connection.request("GET", "/ops", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200
        self.open.set()
        for raw in answer:
            if raw.startswith(b'data: {"'):  # not that of `live`
                self.heard.append(json.loads(raw[6:])["id"])


class Subscribing(Reader):
    """By WebSocket."""

    def read(self) -> None:
        with connect(self.host.ws_url, open_timeout=PATIENCE_S) as socket:
            socket.send(json.dumps({"action": "subscribe", "password": self.secret}))
            try:
                while True:
                    self._take(json.loads(socket.recv()))
            except ConnectionClosed:
                return

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("reply") == "subscribed":
            self.open.set()
        self.said += [message["error"]] if "error" in message else []
        self.heard += [event["data"]["id"] for event in message.get("events", ())]


@contextmanager
def busy(host: Server) -> Iterator[None]:
    """Post for two users all the time."""
    over = threading.Event()

    def post() -> None:
        number = 0
        while not over.wait(EVERY_S):
            number += 1
            assert (
                ask(host, "POST", INGEST, [op(f"{user}-{number}", user) for user in "ab"])[0] == 204
            )

    poster = threading.Thread(target=post)
    poster.start()
    try:
        yield
    finally:
        over.set()
        poster.join()


def op(name: str, user: str) -> dict[str, Any]:
    return {"event": "update", "type": "video", "id": name, "parents": [f"user/{user}"]}


def reading(host: Server, *secrets: str) -> list[Reader]:
    found: list[Reader] = [
        kind(host, secret) for secret in secrets for kind in (Streaming, Subscribing)
    ]
    for reader in found:
        reader.start()
    for reader in found:
        assert reader.open.wait(PATIENCE_S)
    return found


def test_a_leaked_key_is_of_no_use_five_seconds_later(host: Server) -> None:
    """Its streams end, its sockets get the reason and are closed, its posts are refused; all others
    keep receiving, and the key that replaces it has the same rights.
    """
    leaked = keys(host, "create", "--role", "read", "--role", "ingest", "--parent", "user/a")
    other = keys(host, "create", "--role", "read", "--parent", "user/b")
    with busy(host):
        stolen, kept = reading(host, leaked), reading(host, other, READ)
        assert [each.receives_more() for each in [*stolen, *kept]] == [True] * 6
        assert ask(host, "POST", leaked, op("mine", "a"))[0] == 204
        assert ask(host, "POST", leaked, op("not mine", "b"))[1]["code"] == "outside_key"

        replacement = keys(host, "rotate", id_of(leaked), "--overlap", "0")
        revoked_s = time.monotonic()
        until(lambda: ask(host, "POST", leaked, op("late", "a"))[0] == 401)
        refused_s = time.monotonic()
        until(lambda: all(each.ended_s for each in stolen))
        took_s = [moment - revoked_s for moment in [refused_s, *(each.ended_s for each in stolen)]]
        assert max(took_s) < PROMISE_S + SLACK_S, took_s

        assert ask(host, "GET", leaked)[1]["code"] == "wrong_key"
        assert [each["code"] for each in stolen[1].said] == ["key_ended"]
        assert ask(host, "POST", replacement, op("new-a", "a"))[0] == 204
        anew = reading(host, replacement)
        assert [each.receives_more() for each in [*kept, *anew]] == [True] * 6
    assert not any(each.ended_s for each in [*kept, *anew])
    for reader, users in ((stolen[0], "a"), (stolen[1], "a"), (kept[0], "b"), (anew[1], "a")):
        assert {name for name in reader.heard if "-" in name and name[0] not in users} == set()


def test_the_command_shows_what_became_of_it(host: Server) -> None:
    """Until it is forgotten, a month later."""
    key = keys(host, "create", "--role", "read", "--label", "a browser")
    keys(host, "revoke", id_of(key))
    shown = json.loads(keys(host, "show", id_of(key), "--json"))
    assert (shown["state"], shown["label"]) == ("revoked", "a browser")
    assert key not in keys(host, "list", "--json")
