"""Each view of the console passes the rules of WCAG 2.2 AA in axe-core, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection

from tests.unit.client import chromium
from tests.world import installing
from tidings.server.running import Server

pytestmark = pytest.mark.browser

WIDTHS = {"phone": 360, "desktop": 1280}
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# The findings as text: rule, what is wrong, and the element.
_CHECK = f"""axe.run(document, {{ runOnly: {_RULES} }}).then(({{ violations }}) =>
  violations.flatMap(({{ id, nodes }}) => nodes.map((node) =>
    `${{id}}: ${{node.failureSummary.split("\\n")[1].trim()}} ${{node.html.slice(0, 120)}}`)))"""
# The texts of which a line break is within a word, because their column is too narrow.
_BROKEN = r"""[...document.querySelectorAll("th, td")].filter((cell) => {
  const words = (cell.textContent.match(/[A-Za-z]+/g) ?? []).filter((word) => word.length < 16);
  const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT).nextNode();
  return text && words.some((word) => {
    const range = document.createRange();
    const at = text.data.indexOf(word);
    if (at < 0) return false;
    range.setStart(text, at);
    range.setEnd(text, at + word.length);
    return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1;
  });
}).map((cell) => cell.textContent)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConnection]:
    with chromium.browser(tmp_path_factory.mktemp("profile")) as socket:
        yield socket


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with something in each view."""
    with Server(data=tmp_path_factory.mktemp("data")) as server:
        with httpx.Client(base_url=f"{server.url}feeds/main/") as http:
            for number in range(12):
                folder = ("src/core", "src/edge", "docs")[number % 3]
                operation: dict[str, Any] = {"event": "insert", "type": "file", "parents": ["repo"]}
                operation |= {"id": f"{folder}/f{number}", "data": {"message": "first version"}}
                http.post("ops", json=operation).raise_for_status()
            http.post("ops", json={**operation, "event": "update"}).raise_for_status()
            http.post("ops", json={**operation, "event": "delete"}).raise_for_status()
            http.put("consumers/search", json={}).raise_for_status()
            fence = http.post("consumers/search/lease", json={"worker": "indexer"}).json()["fence"]
            failed = {"fence": fence, "id": _first(http), "error": "no room"}
            http.post("consumers/search/fail", json=failed).raise_for_status()
            park = {"why": "no room", "by": "ann"}
            http.post("consumers/search/park", json=park).raise_for_status()
            http.put("hooks/films", json={"url": "https://a.example/x"}).raise_for_status()
        yield server


def _first(http: httpx.Client) -> str:
    return str(http.get("log").json()["oldest"])


@pytest.fixture(scope="module")
def axe() -> str:
    return (installing.node_folder() / "node_modules/axe-core/axe.min.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_console_has_no_findings(
    host: Server, browser: ClientConnection, axe: str, width: str, scheme: str
) -> None:
    """In each view, and with an open event, consumer and dialog."""
    with chromium.tab(browser) as page:
        page.scheme(scheme)
        found = [
            f"{place}: {finding}"
            for place in _places(page, host.url, axe, WIDTHS[width])
            for finding in _check(page)
        ]
    assert not found, "\n".join(found)


def _places(page: chromium.Page, url: str, axe: str, width: int) -> Iterator[str]:
    """Yield the name of each place, while it is shown."""
    page.open(f"{url}console/", width=width, height=800)
    page.js(f"new Function({axe!r})()")
    for view in page.js("[...document.querySelectorAll('[data-view]')].map((a) => a.dataset.view)"):
        _show(page, view)
        yield view
    _show(page, "consumers")
    page.js("document.querySelector('#consumers button').click()")
    page.until("!document.querySelector('#consumer')?.hidden")
    yield "a consumer"
    pause = "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Pause')"
    page.js(f"{pause}.click()")
    page.until("document.querySelector('#dialog')?.open")
    yield "a dialog"
    page.js("document.querySelector('#dialog').close()")
    yield from _forms(page)
    _show(page, "events")
    page.until("!!document.querySelector('.object')")
    page.js("document.querySelector('.menu').open = true")
    page.until("document.querySelectorAll('.menu input').length > 1")
    yield "a menu of types"
    page.js("document.querySelector('.object').click()")
    yield "an event"
    _show(page, "overview")
    page.js("document.querySelector('#picture details').open = true")
    page.until("document.querySelectorAll('#groups tr').length > 0")
    yield "a table of objects"
    page.open(f"{url}console/?type=file&id=docs/f2#/objects", width=width, height=800)
    page.js(f"new Function({axe!r})()")
    page.until("document.querySelectorAll('#history tr').length > 0")
    yield "an object"


def _forms(page: chromium.Page) -> Iterator[str]:
    """Yield the states of forms."""
    _show(page, "events")
    post = "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Post event')"
    page.js(f"{post}.click()")
    page.until("!!document.querySelector('#post-data')")
    page.js("document.querySelector('#post-data').value = '{'")
    page.js("document.querySelector('#post-do').click()")
    yield "a form with errors"
    page.js("document.querySelector('#post-dialog').close()")
    _show(page, "webhooks")
    page.js("document.querySelector('#hooks button').click()")
    page.js("[...document.querySelectorAll('#hooks button')].at(-1).click()")
    page.until("document.querySelector('#new-hook .note').textContent")
    yield "a form that changes a webhook"
    page.js("document.querySelectorAll('#hook button')[1].click()")
    page.js("document.querySelector('#dialog details').open = true")
    yield "a dialog with its request"
    page.js("document.querySelector('#dialog-do').click()")
    page.until("document.querySelector('#reveal')?.open")
    yield "a secret"
    page.js("document.querySelector('#reveal').close()")


def _show(page: chromium.Page, view: str) -> None:
    page.js(f"document.querySelector('[data-view={view}]').click()")
    page.until(f"document.querySelector('[aria-current]').dataset.view === {view!r}")
    page.js("new Promise((done) => setTimeout(done, 400))")  # until its answers are shown


def _check(page: chromium.Page) -> list[str]:
    """Return the findings of axe, broken words, and what is wider than the page."""
    found = [*page.js(_CHECK), *(f"broken word: {text}" for text in page.js(_BROKEN))]
    wide = page.js("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return [*found, *([f"{wide} px wider than the page"] if wide > 0 else [])]
