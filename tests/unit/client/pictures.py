"""Take the pictures of the console that README shows.

python -m tests.unit.client.pictures
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection

from tests.unit.client import chromium
from tidings.server.running import Server

FOLDER = Path(__file__).parents[3] / "docs" / "images"
DESKTOP, PHONE = "console-desktop.png", "console-phone.png"
BYTES_MAX = 150_000
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
        page.js("new Promise((done) => setTimeout(done, 3000))")  # until no area glows
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


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, chromium.browser(Path(profile)) as connection:
        take(connection, FOLDER)
