"""Lambda's API for the interpreter: an invocation runs the real handler in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from tests.contract.answering import HttpServer, ReceivedRequest, Reply

Handler = Callable[[dict[str, Any], object], Any]


class LambdaApi(HttpServer):
    """Runs `handlers` by the last word of a function's name, one at a time: moto is not made for
    threads. `script` holds errors, by the same word, that come before the handler is run.
    """

    def __init__(self, **handlers: Handler) -> None:
        super().__init__(self._reply)
        self.handlers = handlers
        self.script: dict[str, list[Exception]] = {}
        self.invoked: list[tuple[str, dict[str, Any]]] = []
        self._one = threading.Lock()

    def invoke(self, name: str, event: dict[str, Any]) -> Any:
        with self._one:
            self.invoked.append((name, event))
            if self.script.get(name):
                raise self.script[name].pop(0)
            return self.handlers[name](event, None)

    def _reply(self, request: ReceivedRequest) -> Reply:
        name = unquote(request.path).split("/")[-2].rpartition("-")[2]
        try:
            return Reply(json.dumps(self.invoke(name, request.json)).encode())
        except Exception as error:  # noqa: BLE001 Lambda reports any error
            told = {"errorType": type(error).__name__, "errorMessage": str(error)}
            return Reply(json.dumps(told).encode(), headers={"X-Amz-Function-Error": "Unhandled"})
