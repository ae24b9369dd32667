"""One operation on a running twin by its trace, and `/status` after a process was killed."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.compat.oplog.wire import PATIENCE_S, until
from tests.conformance.listeners import SocketListener, SseListener
from tests.twin import Twin
from tests.unit.admin.conftest import LISTENERS, Deserted
from tidings.core import limits

STEPS = ["ingest", "push", "state"]


def lines(data: Path, trace_id: str) -> list[dict[str, Any]]:
    """Return the log lines of the twin's functions with *trace_id*, in their order."""
    texts = (data / "functions.log").read_text(encoding="utf-8").splitlines()
    return [json.loads(text) for text in texts if trace_id in text]


@pytest.mark.java
def test_the_trace_of_an_operation(twin: Twin, data: Path, spare: Iterator[str]) -> None:
    """The log of each function has it with feed, page and delay; consumers get it if they ask for
    it."""
    feed, trace_id = next(spare), secrets.token_hex(16)
    path, traceparent = f"{twin.url}feeds/{feed}/ops", f"00-{trace_id}-00f067aa0ba902b7-01"
    with ExitStack() as stack:
        socket = SocketListener(twin.ws_url)
        stack.callback(socket.close)
        socket.say(json.dumps({"action": "subscribe", "feed": feed, "trace": True}))
        assert socket.answer()["reply"] == "subscribed"
        stream = SseListener(path, {"trace": "true"}, {})
        stack.callback(stream.close)
        assert stream.next().name == "live"

        operation = {"event": "insert", "type": "video", "id": "x32"}
        headers = {"traceparent": traceparent, "Prefer": "return=representation"}
        answer = httpx.post(path, json=operation, headers=headers, timeout=30).raise_for_status()
        (event_id,) = answer.json()["ids"]
        for listener in (socket, stream):
            heard = listener.next()
            assert (heard.id, heard.trace) == (event_id, traceparent)

    until(lambda: len(lines(data, trace_id)) == len(STEPS))
    told = lines(data, trace_id)
    assert sorted(line["step"] for line in told) == STEPS
    assert told[0]["step"] == "ingest"
    for line in told:
        assert (line["message"], line["trace_id"], line["feed"]) == ("traced", trace_id, feed)
        assert line["page"] == int(event_id[8:18], 16)
        assert 0 <= line["ms"] < 60_000


FORGOTTEN_S = limits.PRESENCE_MS / 1000 + 20  # with a margin for a busy machine


@pytest.mark.java
def test_O64_clients_of_a_killed_process_are_forgotten(deserted: Deserted) -> None:
    """`kill -9` closes no connection properly: the number is still right within a minute."""
    feed, over_s = deserted.feed, time.monotonic() - deserted.killed_s
    with feed.listening():
        until(lambda: feed.status()["connections"] == LISTENERS + 1)
        until(lambda: feed.status()["clients"] == 1, within_s=max(PATIENCE_S, FORGOTTEN_S - over_s))
