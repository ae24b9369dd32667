"""The JavaScript module, in headless Chromium and in Node, compared with the Python class."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection

from tests.compat.oplog.wire import PATIENCE_S, until
from tests.compat.triton.publisher import Peer, Publisher
from tests.compat.triton.wire import ChangeFeed, item
from tests.unit.client import chromium

FOLDER = Path(__file__).parents[3] / "clients/javascript/src"
# Runs a listener and stores its events in `heard`, names of items, else kinds of signals.
RUN = """
  globalThis.heard = [];
  globalThis.reasons = [];
  import(MODULE).then(async ({ Listener, MemoryBuffer }) => {
    const options = { instance: "i1", service: "tcns", minTimeout: 1, maxTimeout: 2, ...OPTIONS };
    if (options.bufferMax) options.buffer = new MemoryBuffer(options.bufferMax);
    let begun = 0;
    if (options.slow) options.fetchObjects = async function* () {
      if (begun++) return;
      await new Promise((resolve) => { // until the buffer overflows, which clears it
        const clear = options.buffer.clear.bind(options.buffer);
        options.buffer.clear = () => resolve(clear());
      });
      yield {};
    };
    globalThis.listener = new Listener(URL_, options);
    for await (const signal of globalThis.listener) {
      globalThis.heard.push(signal.changedResourceId ?? signal.fields?.id ?? signal.kind);
      if (signal.kind === "ended") globalThis.reasons.push(signal.reason);
    }
    globalThis.heard.push("over");
  }).catch((error) => globalThis.heard.push(String(error)));
"""


@pytest.fixture(scope="module")
def files() -> Iterator[str]:
    with chromium.files(FOLDER) as origin:
        yield origin


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConnection]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as socket:
        yield socket


@pytest.fixture
def page(browser: ClientConnection, files: str) -> Iterator[chromium.Page]:
    with chromium.tab(browser) as found:
        found.open(f"{files}/")
        yield found


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher() as serving:
        yield serving


def script(module: str, url: str, **options: Any) -> str:
    wanted = {"resources": {"vm": ["nic"]}, **options}
    return (
        RUN.replace("MODULE", json.dumps(module))
        .replace("URL_", json.dumps(url))
        .replace("OPTIONS", json.dumps(wanted))
    )


def heard(page: chromium.Page) -> list[str]:
    return list(page.js("globalThis.heard"))


@pytest.mark.browser
def test_F35_F37_F38_F41_in_a_browser(
    page: chromium.Page, publisher: Publisher, files: str
) -> None:
    """A bootstrap before any item, each time; a second one ends it; closed is closed."""
    page.js(script(f"{files}/listener.js", publisher.url) + "; true")
    peer = publisher.next()
    assert peer.said["changeKind"] == {"resource": "vm", "subResources": ["nic"]}
    peer.publish("x1")
    until(lambda: heard(page) == ["bootstrap", "live", "x1"])
    peer.end()
    peer = publisher.next()
    until(lambda: heard(page)[3:] == ["ended", "bootstrap", "live"])
    peer.tell({"resource": "vm", "subResources": [], "bootstrapRoute": "/vms"})
    assert peer.gone()
    peer = publisher.next()
    until(lambda: heard(page)[6:] == ["ended", "bootstrap", "live"])
    assert page.js("globalThis.reasons")[1] == "Invalid socket state"
    page.js("globalThis.listener.close()")
    assert peer.gone()
    until(lambda: heard(page)[-1] == "over")


@pytest.mark.browser
def test_F40_an_overflow_in_a_browser(
    page: chromium.Page, publisher: Publisher, files: str
) -> None:
    """While the bootstrap is read: all of it begins again."""
    page.js(script(f"{files}/listener.js", publisher.url, bufferMax=2, slow=True) + "; true")
    peer: Peer = publisher.next()
    peer.publish("x1", "x2", "x3")
    assert peer.gone()
    publisher.next().publish("x4")
    until(lambda: "x4" in heard(page))
    assert page.js("globalThis.reasons") == ["the buffer is full"]
    assert not {"x1", "x2", "x3"} & set(heard(page))


@pytest.mark.browser
def test_F37_F39_a_feed_in_a_browser(page: chromium.Page, feed: ChangeFeed, files: str) -> None:
    """The existing objects, by the feed's own route, and the later ones, from another origin."""
    feed.publish(item("x1", "a", resource="own"))
    until(lambda: feed.objects()["objects"])
    options = {"feed": feed.name, "resources": {"own": ["a"], "vm": ["nic"]}}
    page.js(script(f"{files}/listener.js", f"http://127.0.0.1:{feed.port}/", **options) + "; true")
    until(lambda: "live" in heard(page))
    feed.publish(item("x2", "nic"))
    until(lambda: heard(page)[-1] == "x2")
    assert heard(page)[:2] == ["bootstrap", "x1"]


def test_F37_in_node(publisher: Publisher) -> None:
    """The same file, with Node's own WebSocket."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js 20.10 or newer")
    code = script((FOLDER / "listener.js").as_uri(), publisher.url)
    code += (
        "setInterval(() => { if (!heard.includes('x1')) return;"
        " console.log(heard.join()); process.exit(); }, 10);"
    )
    with subprocess.Popen(
        [node, "--experimental-websocket", "--input-type=module", "-e", code],
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        publisher.next().publish("x1")
        said, _ = running.communicate(timeout=PATIENCE_S)
    assert said.strip() == "bootstrap,live,x1"
