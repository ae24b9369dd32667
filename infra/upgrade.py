"""
The upgrade drill: what clients of a stage have in their hands must be worth as much afterwards.

`Drill.before` is played on the stage as the last release deployed it, `Drill.after` once it is
updated: cursors, passwords, the state, the log, and a WebSocket that was open all the while.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from tidings.aws.config.stages import Addresses
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from infra import tidings_cli

WAIT_S = 90  # functions of an emulator start cold after an update, each in a process of its own
POLL_S = 0.5
READER, PRODUCER = "the password of readers", "the password of producers"


class UpgradeFailed(Exception):
    """Something did not survive the update."""


@dataclass
class Drill:
    """*variables* lead AWS clients to *stage*; call `before`, `after` and `end` in this order."""

    stage: str
    variables: Mapping[str, str]
    _ids: list[str] = field(default_factory=list)
    _socket: ClientConnection | None = None

    def before(self, addresses: Addresses) -> None:
        """
        Passwords, a log, a state, a cursor, a connection.

        Raises:
            UpgradeFailed: the old release itself does not do as it should.
        """
        for role, password in (("ingest", PRODUCER), ("read", READER)):
            self._password(role, "--password-file", "-", stdin=password)
        _until(lambda: _post(addresses, None) == 401, "a password does not count")
        for subject, event in (("a", "insert"), ("b", "insert"), ("a", "update"), ("b", "delete")):
            self._ids += _posted(addresses, event, subject)
        socket = connect(addresses.sockets, open_timeout=WAIT_S)
        socket.send(json.dumps({"action": "subscribe", "password": READER}))
        reply = socket.recv(WAIT_S, decode=True)
        _check('"subscribed"' in reply, f"subscribe was answered with {reply}")
        self._socket = socket

    def after(self, addresses: Addresses) -> list[str]:
        """
        One sentence for each thing that is still there.

        Raises:
            UpgradeFailed: what is not.
        """
        _check(_post(addresses, None) == 401, "after the update anybody may post")
        _check(_post(addresses, READER) == 401, "after the update readers may post")
        self._ids += _posted(addresses, "insert", "c")
        first, *later = self._ids
        ids = [each for each, _ in _stream(addresses, first, later[-1])]
        _check(ids == later, f"after {first} came {ids}, not {later}")
        copy = {data["id"] for _, data in _stream(addresses, "0", "live")}
        _check(copy == {"a", "c"}, f"the state has {copy}")
        self._listen(later[-1])
        return [
            "passwords hold, and nobody else is let in",
            f"the cursor {first} is followed by {len(later)} operations, the last one new",
            "the state has what was there and what is new",
            "the WebSocket that was open all the while was sent the new operation",
        ]

    def end(self, addresses: Addresses) -> None:
        """Open the stage again, for the suites that carry no password."""
        for role in ("ingest", "read"):
            self._password(role, "--remove")
        _until(lambda: _post(addresses, None) == 200, "without passwords the stage stays closed")

    def _listen(self, event_id: str) -> None:
        assert self._socket is not None
        with self._socket as socket:
            try:
                while True:
                    events = json.loads(socket.recv(WAIT_S)).get("events", [])
                    if event_id in [each["id"] for each in events]:
                        return
            except (TimeoutError, WebSocketException) as problem:
                raise UpgradeFailed(
                    f"the open WebSocket was not sent {event_id}: {problem!r}"
                ) from None

    def _password(self, role: str, *options: str, stdin: str = "") -> None:
        """By the command an operator uses."""
        where = ("feed", "password", role, "--stage", self.stage)
        tidings_cli.run(self.variables, *where, *options, stdin=stdin)


def _post(addresses: Addresses, password: str | None) -> int:
    """The status an operation is answered with that nobody looks at later."""
    return _sent(addresses, password, {"event": "insert", "type": "probe", "id": "p"}).status_code


def _posted(addresses: Addresses, event: str, subject: str) -> list[str]:
    answer = _sent(addresses, PRODUCER, {"event": event, "type": "drill", "id": subject})
    _check(answer.status_code == 200, f"POST: {answer.status_code} {answer.text}")
    ids: list[str] = answer.json()["ids"]
    return ids


def _sent(
    addresses: Addresses, password: str | None, operation: Mapping[str, str]
) -> httpx.Response:
    return httpx.post(
        f"{addresses.feed}/ops",
        json=operation,
        auth=None if password is None else ("", password),
        headers={"Prefer": "return=representation"},
        timeout=WAIT_S,
    )


def _stream(addresses: Addresses, after: str, until: str) -> list[tuple[str, dict[str, Any]]]:
    """Ids and operations behind a cursor, up to an id or the event *until*."""
    events = []
    fields: dict[str, str] = {}
    with httpx.stream(
        "GET",
        f"{addresses.stream}/ops?types=drill",
        headers={"Accept": "text/event-stream", "Last-Event-ID": after},
        auth=("", READER),
        timeout=WAIT_S,
    ) as answer:
        _check(answer.status_code == 200, f"GET: {answer.status_code}")
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            fields[name] = value
            if not line and "event" in fields:
                events += [(fields.get("id", ""), {"event": fields["event"], **_data(fields)})]
                if until in (fields["event"], fields.get("id")):
                    break
                fields = {}
    return [each for each in events if each[1].get("type") == "drill"]


def _data(fields: Mapping[str, str]) -> dict[str, Any]:
    data = json.loads(fields.get("data") or "null")
    return data if isinstance(data, dict) else {}


def _until(holds: Any, problem: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        _check(time.monotonic() < deadline, problem)
        time.sleep(POLL_S)


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise UpgradeFailed(problem)
