"""Take the pictures of the console that SERVER.md shows, and the recording of README.

python -m tests.unit.client.pictures
"""

from __future__ import annotations

import base64
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection

from tests.unit.client import chromium
from tidings.server.running import Server

FOLDER = Path(__file__).parents[3] / "docs" / "images"
DESKTOP, PHONE, RECORDING = "console-desktop.png", "console-phone.png", "console.webp"
BYTES_MAX = 150_000
RECORDING_BYTES_MAX = 400_000
_FRAME_MS = 1000
_FRAMES = 20  # 20 seconds
_WIDTH, _HEIGHT = 960, 600
# The actions of a person in the recording, by the number of the frame.
_STORY = {
    6: "const it = document.querySelector('#search-text'); it.value = '2026/103';"
    "it.dispatchEvent(new Event('input'))",
    9: "document.querySelector('.object').click()",
    12: "[...document.querySelectorAll('#inspector button')]"
    ".find((each) => each.textContent === 'Object and its history').click()",
    16: "document.querySelector('[data-view=overview]').click();"
    "setTimeout(() => document.querySelector('#picture').scrollIntoView(), 300)",
}
_KINDS = ("shoes/trail", "shoes/road", "jackets/rain", "jackets/wool", "bags/city")
_ORDER = "2026/1042"


def operations() -> Iterator[dict[str, Any]]:
    """Yield the changes of a small shop."""
    for number in range(90):
        kind = _KINDS[number * number // 7 % len(_KINDS)]
        yield _change("insert", "product", f"{kind}-{number}", kind, "added to the catalogue")
    for number in range(40):
        kind = _KINDS[number % len(_KINDS)]
        yield _change("insert", "stock", f"{kind}-{number}", kind, f"{7 * number % 50} in store")
    for number in range(25):
        kind = _KINDS[3 * number % len(_KINDS)]
        yield _change("insert", "order", f"2026/{1030 + number}", kind, "ordered")
    for state in ("paid", "packed", "sent"):
        yield _change("update", "order", _ORDER, "customer/ann", state)
    yield _change("update", "stock", "shoes/trail-35", "shoes/trail", "2 in store")
    yield _change("update", "product", "shoes/road-6", "shoes/road", "new price: 89.00")
    yield _change("delete", "product", "bags/city-4", "bags/city", "sold out")


def _change(event: str, type_: str, id_: str, parent: str, message: str) -> dict[str, Any]:
    data = {"message": message}
    return {"event": event, "type": type_, "id": id_, "parents": [parent], "data": data}


def take(browser: ClientConnection, folder: Path) -> None:
    """Write both pictures into *folder*."""
    with (
        tempfile.TemporaryDirectory() as data,
        Server(data=Path(data) / "data") as host,
        httpx.Client(base_url=host.url) as http,
        chromium.tab(browser) as page,
    ):
        changes = list(operations())
        for change in changes[:-60]:
            http.post("ops", json=change).raise_for_status()
        page.scheme("light")
        page.open(f"{host.url}console/", width=1280, height=800)
        page.until("document.querySelector('#badge').textContent === 'live'")
        for change in changes[-60:]:
            http.post("ops", json=change).raise_for_status()
        page.until(f"document.querySelector('#total').textContent === '{len(changes)}'")
        page.picture(folder / DESKTOP)

        page.scheme("dark")
        page.open(f"{host.url}console/?type=order&id={_ORDER}#/objects", width=360, height=740)
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=360,
            height=740,
            deviceScaleFactor=2,
            mobile=True,
        )
        page.until("document.querySelectorAll('#history tr').length === 4")
        page.until("!document.querySelector('#object-state').hidden")
        page.picture(folder / PHONE)


def record(browser: ClientConnection, folder: Path) -> None:
    """Write a recording of 20 seconds into *folder*: events arrive, and a person looks at one."""
    with Server() as host, httpx.Client(base_url=host.url) as http, chromium.tab(browser) as page:
        changes = list(operations())
        for change in changes[:-_FRAMES]:
            http.post("ops", json=change).raise_for_status()
        page.scheme("light")
        page.open(f"{host.url}console/", width=_WIDTH, height=_HEIGHT)
        page.until("document.querySelector('#badge').textContent === 'live'")
        frames = []
        for number, change in enumerate(changes[-_FRAMES:]):
            began = time.monotonic()
            http.post("ops", json=change).raise_for_status()
            page.js(f"{{ {_STORY.get(number, '')} }}")
            taken = page.call("Page.captureScreenshot", format="webp", quality=35)
            frames.append(base64.b64decode(taken["data"]))
            time.sleep(max(0.0, began + _FRAME_MS / 1000 - time.monotonic()))
    (folder / RECORDING).write_bytes(_animated(frames))


def _animated(frames: list[bytes]) -> bytes:
    """Return the WebP pictures *frames* as an animated one, which begins again at its end."""
    size = (_WIDTH - 1).to_bytes(3, "little") + (_HEIGHT - 1).to_bytes(3, "little")
    chunks = [_chunk(b"VP8X", b"\2\0\0\0" + size), _chunk(b"ANIM", b"\xff\xff\xff\xff\0\0")]
    for frame in frames:
        lossy = frame[frame.index(b"VP8 ") :]
        length = 8 + int.from_bytes(lossy[4:8], "little")
        place = bytes(6) + size + _FRAME_MS.to_bytes(3, "little") + b"\2"
        chunks.append(_chunk(b"ANMF", place + lossy[: length + length % 2]))
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, chromium.browser(Path(profile)) as connection:
        take(connection, FOLDER)
        record(connection, FOLDER)
