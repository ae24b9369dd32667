"""Producers of each kind: one operation, arrays, lines, repeated requests and changes."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.oracle.history import History

TYPES = ("video", "user", "order")
OBJECTS = 40  # few, so that all producers write the same ones
PARENTS = ("a", "b", "c")
_PAUSE_S = 0.02  # between two requests: the load is steady, and consumers keep up
_ATTEMPTS_S = 60.0  # a request with an Idempotency-Key is repeated for this long


class Producer:
    """Posts to what *url* returns until *is_over*, and records in *history* what it knows."""

    def __init__(
        self, number: int, url: Callable[[], str], history: History, is_over: Callable[[], bool]
    ) -> None:
        self._random = random.Random(number)
        self._number, self._url, self._history, self._is_over = number, url, history, is_over
        self._client = httpx.Client(timeout=20)

    def __call__(self) -> None:
        kinds = (self._single, self._array, self._lines, self._repeated, self._change)
        while not self._is_over():
            try:
                kinds[(self._number + self._random.randrange(2)) % len(kinds)]()
            except httpx.HTTPError:
                time.sleep(0.2)
            time.sleep(_PAUSE_S)
        self._client.close()

    def _operation(self, number: int) -> dict[str, Any]:
        return {
            "event": self._random.choice(("insert", "update", "update", "delete")),
            "type": self._random.choice(TYPES),
            "id": f"x{self._random.randrange(OBJECTS)}",
            "parents": self._random.sample(PARENTS, self._random.randrange(3)),
            "data": {"n": number},
        }

    def _post(self, path: str, body: str, content: str, **headers: str) -> httpx.Response:
        headers = {"Content-Type": content, **headers}
        return self._client.post(f"{self._url()}{path}", content=body, headers=headers)

    def _single(self) -> None:
        sent = self._history.sends(1)
        body = json.dumps(self._operation(sent.numbers[0]))
        if self._post("/ops", body, "application/json").status_code == httpx.codes.NO_CONTENT:
            self._history.acked(sent)

    def _array(self) -> None:
        sent = self._history.sends(self._random.randint(1, 20))
        body = json.dumps([self._operation(number) for number in sent.numbers])
        prefer = {"Prefer": "return=representation"}
        answer = self._post("/feeds/main/ops", body, "application/json", **prefer)
        if answer.is_success:
            self._history.acked(sent, answer.json()["ids"])

    def _lines(self) -> None:
        sent = self._history.sends(self._random.randint(1, 200))
        body = "\n".join(json.dumps(self._operation(number)) for number in sent.numbers)
        if self._post("/ops", body, "application/x-ndjson").is_success:
            self._history.acked(sent)

    def _repeated(self) -> None:
        """Repeat it until it is acknowledged: it has to be there once."""
        sent = self._history.sends(self._random.randint(1, 5))
        body = json.dumps([self._operation(number) for number in sent.numbers])
        headers = {
            "Idempotency-Key": f"{self._number}-{sent.numbers[0]}",
            "Prefer": "return=representation",
        }
        deadline, answers = time.monotonic() + _ATTEMPTS_S, 0
        while time.monotonic() < deadline and answers < 2 and not self._is_over():
            try:
                answer = self._post("/ops", body, "application/json", **headers)
            except httpx.HTTPError:
                time.sleep(0.2)
                continue
            if not answer.is_success:
                time.sleep(0.2)
                continue
            ids = answer.json()["ids"]
            if answers and list(ids) != list(sent.ids) and not sent.may_be_lost:
                self._history.violated(f"4.5 a repeated request: {sent.ids}, then {ids}")
            self._history.acked(sent, ids)
            answers += 1

    def _change(self) -> None:
        sent = self._history.sends(1)
        body = json.dumps({"data": {"n": sent.numbers[0]}, "tags": ["t"]})
        if self._post("/changes", body, "application/json").is_success:
            self._history.acked(sent)
