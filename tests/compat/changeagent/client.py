"""The changes of one feed of a host, as changeagent's clients ask for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.compat.oplog.feed import ask
from tests.compat.oplog.wire import JSON, Answer


@dataclass(frozen=True, slots=True)
class Changes:
    port: int
    feed: str

    @property
    def path(self) -> str:
        return f"/feeds/{self.feed}/changes"

    def send(self, body: bytes, **headers: str) -> Answer:
        """POST *body* as it is; a header's name is written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(self.port, "POST", self.path, {"content-type": JSON, **named}, body)

    def post(self, data: Any = None, *tags: str) -> int:
        """Post a change and return its id."""
        body = {"data": data, "tags": list(tags)} if tags else {"data": data}
        answer = self.send(json.dumps(body).encode())
        assert answer.status == 200, answer
        number: int = json.loads(answer.body)["_id"]
        return number

    def ask(self, *pairs: tuple[str, object]) -> Answer:
        query = urlencode(pairs)
        return ask(self.port, "GET", f"{self.path}?{query}" if query else self.path)

    def get(self, *pairs: tuple[str, object]) -> dict[str, Any]:
        answer = self.ask(*pairs)
        assert (answer.status, answer.headers["content-type"]) == (200, JSON), answer
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def ids(self, *pairs: tuple[str, object]) -> list[int]:
        return [change["_id"] for change in self.get(*pairs)["changes"]]

    def one(self, name: object) -> Answer:
        return ask(self.port, "GET", f"{self.path}/{name}")

    def operations(self, *operations: dict[str, Any]) -> None:
        """Post them as any producer would."""
        body = json.dumps(operations).encode()
        answer = ask(self.port, "POST", f"/feeds/{self.feed}/ops", {"content-type": JSON}, body)
        assert answer.status == 204, answer


class Parallel(threading.Thread):
    """Runs *work* in parallel to the test; `result` waits for its result."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._result: Any = None
        self.start()

    def run(self) -> None:
        self._result = self._work()

    @property
    def running(self) -> bool:
        return self.is_alive()

    def result(self, within_s: float = 40.0) -> Any:
        self.join(within_s)
        assert not self.is_alive(), "it does not end"
        return self._result
