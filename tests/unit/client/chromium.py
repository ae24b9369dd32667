"""Headless Chromium over its DevTools protocol: open a page, evaluate, take its picture."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PATH = Path("/usr/bin/chromium")
WITHIN_S = 180.0
_SWITCHES = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-extensions", "--no-default-browser-check", "--remote-debugging-port=0",
)  # fmt: skip


class Page:
    """One tab. Everything it logged as an error is kept in *errors*."""

    def __init__(self, socket: ClientConnection, session: str, ids: Iterator[int]) -> None:
        self._socket = socket
        self._session = session
        self._ids = ids
        self.errors: list[str] = []

    def call(self, method: str, **params: Any) -> Any:
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=WITHIN_S))
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._note(answer)

    def open(self, url: str, width: int = 1280, height: int = 800) -> None:
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=url)
        self.until(f"location.href === {url!r} && document.readyState === 'complete'")

    def scheme(self, name: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def js(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; it may be a promise."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until the expression is true."""
        deadline = time.monotonic() + WITHIN_S
        while not (value := self.js(expression)):
            assert time.monotonic() < deadline, f"never true: {expression}; {self.errors}"
            time.sleep(0.02)
        return value

    def press(self, key: str) -> None:
        """Press a key by its name, as `Tab`, `Enter`, `Escape`, `ArrowDown`."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "End": 35}[key]
        named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **named, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def write(self, text: str) -> None:
        """Type *text* into the element with the focus."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        found = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])


@contextmanager
def browser(profile: Path) -> Iterator[ClientConnection]:
    """Run Chromium with *profile* as its folder until the end of the block."""
    with subprocess.Popen(
        [str(PATH), *_SWITCHES, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            port, path = _port_and_path(profile / "DevToolsActivePort")
            with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as socket:
                yield socket
        finally:
            process.terminate()
            process.wait(WITHIN_S)


@contextmanager
def files(folder: Path) -> Iterator[str]:
    """Serve the files of *folder* to a page, with an origin of its own."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def tab(socket: ClientConnection) -> Iterator[Page]:
    """Open a fresh tab without cookies or storage of others."""
    root = Page(socket, "", itertools.count(1))
    context = root.call("Target.createBrowserContext")["browserContextId"]
    target = root.call("Target.createTarget", url="about:blank", browserContextId=context)
    attached = root.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    try:
        yield Page(socket, attached["sessionId"], itertools.count(1000))
    finally:
        root.call("Target.disposeBrowserContext", browserContextId=context)


def _port_and_path(file: Path) -> tuple[str, str]:
    """Return the port and the path, which Chromium writes into its profile once it listens."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        lines = file.read_text().splitlines() if file.is_file() else []
        if len(lines) == 2:
            return lines[0], lines[1]
        assert time.monotonic() < deadline, "Chromium did not start"
        time.sleep(0.02)
