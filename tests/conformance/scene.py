"""One case being played: its target, its names, its listeners and the last answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.conformance import values
from tests.conformance.catalogue import Case
from tests.conformance.listeners import (
    PATIENCE_S,
    TRUSTED,
    Listener,
    ReceivedEvent,
    SocketListener,
    SseListener,
)
from tests.conformance.target import Target
from tests.described import Description
from tidings.core.model.events import SWITCHES
from tidings.core.model.filters import as_text

FILTERS = ("types", "parents", "ids")  # lists of values, over every transport
# `feed`, `from`, a filter, switches, and for a GET `path`, `format`, `accept` and `cursors`.
Wish = Mapping[str, Any]


@cache
def _description() -> Description:
    return Description()


def _check_description(answer: httpx.Response) -> None:
    """Fail if *answer* is not one that `/openapi.json` describes; a feed may differ (4.8)."""
    answer.read()
    problem = _description().problem(answer)
    assert not problem, problem


class Scene:
    """One case being played. *token* is in everything the case posts, and in nothing else."""

    def __init__(self, target: Target, case: Case, token: str) -> None:
        self.target, self.case, self.token = target, case, token
        self.names: dict[str, Any] = {
            "t": token,
            "ops": target.ops_path,
            "feed": target.feed,
            "host": urlsplit(target.base_url).netloc,
            **case.row,
        }
        self.answer: httpx.Response | None = None
        self.listeners: dict[str, Listener] = {}
        self.stack = ExitStack()
        self.http = self.stack.enter_context(
            httpx.Client(
                base_url=target.base_url,
                timeout=PATIENCE_S * 3,
                verify=TRUSTED,
                event_hooks={"response": [_check_description]},
            )
        )

    def close(self) -> None:
        self.stack.close()

    def beside(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """Do *work* while the following steps run; the returned function waits for its result."""
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(work()), daemon=True)
        thread.start()

        def answer() -> Any:
            thread.join(PATIENCE_S * 3)
            assert answers, "it still waits, or was refused"
            return answers[0]

        return answer

    def ready(self, argument: Any) -> Any:
        """*argument* with its names looked up; only now, as steps before may have saved some."""
        return values.expand(argument, self.names)

    def open(self, name: str, transport: str, wish: Wish) -> None:
        """Start listening; the feed vouches for everything after this returns."""
        listener = (self._open_sse if transport == "sse" else self._open_socket)(wish)
        self.keep(name, listener)

    def sse(self, name: str) -> SseListener:
        listener = self.listeners[name]
        assert isinstance(listener, SseListener)
        return listener

    def socket(self, name: str) -> SocketListener:
        listener = self.listeners[name]
        assert isinstance(listener, SocketListener)
        return listener

    def keep(self, name: str, listener: Listener) -> None:
        self.stack.callback(listener.close)
        self.listeners[name] = self.names[name] = listener

    def get(self, wish: Wish) -> SseListener:
        params = {key: as_text(wish[key]) for key in FILTERS if key in wish}
        params |= {switch: "true" for switch in SWITCHES if wish.get(switch)}
        params |= {"format": wish["format"]} if "format" in wish else {}
        if wish.get("cursors", "?" not in wish.get("path", "")):
            params["cursors"] = "true"
        headers = {"Last-Event-ID": wish["from"]} if "from" in wish else {}
        headers |= {"Accept": wish["accept"]} if "accept" in wish else {}
        ops_path = replace(self.target, feed=wish.get("feed", self.target.feed)).ops_path
        url = self.target.stream_url + wish.get("path", ops_path)
        listener = SseListener(url, params, headers)
        self.stack.callback(listener.close)
        return listener

    def subscribe(self, wish: Wish) -> tuple[SocketListener, dict[str, Any]]:
        listener = SocketListener(self.target.ws_url)
        self.stack.callback(listener.close)
        message = {"action": "subscribe", "feed": self.target.feed, **wish}
        listener.say(json.dumps(message))
        return listener, listener.answer()

    def _open_sse(self, wish: Wish) -> SseListener:
        listener = self.get(wish)
        assert listener.response.status_code == 200, listener.response.text
        query = parse_qs(urlsplit(wish.get("path", "")).query)
        if wish.get("from", query.get("lastEventId", ["now"])[0]) in ("", "now"):
            first = listener.next()  # the end of the log (7.4); lines of other formats have no name
            assert first.name in ("live", "") and listener.started_at.encode() in listener.raw, (
                first
            )
        return listener

    def _open_socket(self, wish: Wish) -> SocketListener:
        listener, answer = self.subscribe(wish)
        assert answer.get("reply") == "subscribed", answer
        listener.cursor = listener.cursor or answer["cursor"]
        return listener

    def heard(self, name: str) -> ReceivedEvent:
        """Return the next event of this case: on a feed of our own, any event."""
        while True:
            heard = self.listeners[name].next()
            ours = self.token in json.dumps(heard.data)
            if ours or not heard.data or (self.target.alone and not heard.is_row):
                return heard

    def until_live(self, name: str) -> Iterator[ReceivedEvent]:
        while (heard := self.heard(name)).name != "live":
            yield heard

    def post(self, operations: list[Any], **headers: str) -> httpx.Response:
        wire = [values.operation(short, self.token) for short in operations]
        return self.http.post(self.target.ops_path, json=wire, headers=headers)

    def append(self, operations: list[Any]) -> list[str]:
        """Post what must be accepted; the event ids."""
        answer = self.post(operations, Prefer="return=representation")
        assert answer.status_code == 200, answer.text
        ids: list[str] = answer.json()["ids"]
        return ids
