"""
What must work on any deployed stage, in three sentences a client could say.

The conformance suite says the rest; this is what is run before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import httpx
from websockets.sync.client import connect

WAIT_S = 90  # emulators start a process for each function that is called the first time


class SmokeFailed(Exception):
    """An answer was not what PROTOCOL.md promises."""


def run(base_url: str, stream_url: str, sockets_url: str) -> Iterator[str]:
    """
    One line for each thing that was seen to work.

    Raises:
        SmokeFailed: the first one that did not.
    """
    socket_subject, stream_subject = (f"smoke-{uuid4().hex}" for _ in range(2))
    with connect(sockets_url, open_timeout=WAIT_S) as socket:
        socket.send(json.dumps({"action": "subscribe"}))
        reply = json.loads(socket.recv(WAIT_S))
        _check(reply.get("reply") == "subscribed", f"subscribe was answered with {reply}")
        event_id = _post(base_url, socket_subject)
        yield f"POST answered with the id {event_id}"
        ids = _ids_in(socket.recv(WAIT_S))
        _check(event_id in ids, f"the WebSocket sent {ids}, not {event_id}")
        yield "WebSocket sent the operation"
    later = _post(base_url, stream_subject)
    _check(
        _next_id(stream_url, event_id) == later, f"SSE after {event_id} did not start with {later}"
    )
    yield "SSE resumed after the first operation with the second"


def _post(base_url: str, subject: str) -> str:
    answer = httpx.post(
        f"{base_url}/ops",
        json={"event": "insert", "type": "smoke", "id": subject},
        headers={"Prefer": "return=representation"},
        timeout=WAIT_S,
    )
    _check(answer.status_code == httpx.codes.OK, f"POST: {answer.status_code} {answer.text}")
    return str(answer.json()["ids"][0])


def _ids_in(message: str | bytes) -> list[str]:
    return [event["id"] for event in json.loads(message).get("events", [])]


def _next_id(stream_url: str, after: str) -> str | None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": after}
    with httpx.stream("GET", f"{stream_url}/ops", headers=headers, timeout=WAIT_S) as answer:
        for line in answer.iter_lines():
            if line.startswith("id: "):
                return line.removeprefix("id: ")
    return None


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise SmokeFailed(problem)
