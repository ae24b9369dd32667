"""The operators' views of the console in a browser, against a server with a failed consumer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection

from tests.compat.oplog import feed as oplog
from tests.hosts import make_key
from tests.unit.client import chromium
from tidings.server.running import Server

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=alert(1)>"
TABS_MAX = 120  # more than the page has stops


class Feed:
    """A server with a consumer `search` that has parked one message and failed at the next."""

    def __init__(self, host: Server) -> None:
        self.host = host
        self._http = httpx.Client(base_url=f"{host.url}feeds/main/")
        self.ids = oplog.Feed(host.port, "main").post(*map(oplog.op, (HOSTILE, "b", "c")))
        self._http.put("consumers/search", json={}).raise_for_status()
        for number, error in enumerate((HOSTILE, "no room")):
            fence = self.act("lease", worker="indexer")["fence"]
            self.act("fail", fence=fence, id=self.ids[number], error=error)
            if number == 0:
                self.act("park", why="poison", by="ann")

    def act(self, action: str, **body: Any) -> Any:
        return self._http.post(f"consumers/search/{action}", json=body).raise_for_status().json()

    def ask(self, what: str) -> Any:
        return self._http.get(f"consumers/search{what}").raise_for_status().json()


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Feed]:
    with Server(data=tmp_path_factory.mktemp("data")) as host:
        yield Feed(host)


@pytest.fixture
def page(browser: ClientConnection, feed: Feed) -> Iterator[chromium.Page]:
    with chromium.tab(browser) as found:
        found.open(f"{feed.host.url}console/#/consumers")
        yield found


def _rows(page: chromium.Page, table: str) -> list[list[str]]:
    cells = "[...row.children].map((cell) => cell.textContent)"
    return list(page.js(f"[...document.querySelector('#{table}').children].map((row) => {cells})"))


def _focus(page: chromium.Page, name: str) -> None:
    """Tab until what is called *name* has the focus."""
    found = "document.activeElement.ariaLabel ?? document.activeElement.textContent"
    for _ in range(TABS_MAX):
        if page.js(found) == name:
            return
        page.press("Tab")
    raise AssertionError(f"{name} is not reached by Tab")


def _open(page: chromium.Page) -> None:
    """Open the consumer, by keyboard."""
    page.until("document.querySelector('#consumers').children.length === 1")
    _focus(page, "Open search")
    page.press("Enter")
    page.until("document.activeElement.id === 'consumer-title'")


def test_what_there_is_is_shown_as_text(feed: Feed, page: chromium.Page) -> None:
    """It shows followers, consumers, and parked messages with the reason; producers' text is never
    markup.
    """
    _open(page)
    ((name, state, _, _, parked, position, worker),) = _rows(page, "consumers")
    assert (name, state, parked, worker) == ("search", "failed", "1", "no worker")
    assert position in (*feed.ids, "before the oldest page")
    ((id_, message, _, error, _, _),) = _rows(page, "parked")
    assert (id_, message, error) == (feed.ids[0], f"insert video/{HOSTILE}", HOSTILE)
    assert "no room" in page.js("document.querySelector('#failure').textContent")
    assert [row[1:] for row in _rows(page, "notes")] == [["ann", f"park {feed.ids[0]}", "poison"]]
    assert page.js("document.images.length") == 1


def test_the_overview_shows_the_followers(feed: Feed, page: chromium.Page) -> None:
    """With their lag, refreshed while the view is shown."""
    page.open(f"{feed.host.url}console/#/overview")
    page.until("document.querySelectorAll('#followers tr').length === 2")
    assert [row[0] for row in _rows(page, "followers")] == ["push", "state"]


def test_a_message_is_sent_again_by_keyboard_alone(feed: Feed, page: chromium.Page) -> None:
    """The dialog says what will happen; Escape does nothing, a reason does it."""
    _open(page)
    _focus(page, f"Retry {feed.ids[0]}")
    page.press("Enter")
    assert feed.ids[0] in page.js("document.querySelector('#dialog-says').textContent")
    page.press("Escape")
    page.until("!document.querySelector('#dialog')")
    assert feed.ask("")["retries"] == []
    assert page.js("document.activeElement.ariaLabel") == f"Retry {feed.ids[0]}"

    page.press("Enter")
    page.until("document.activeElement.id === 'dialog-why'")
    page.press("Enter")  # without a reason it stays open
    page.write("the index has room again")
    page.press("Tab")
    page.write("ann")
    page.press("Enter")
    page.until("document.querySelector('#notice').textContent.startsWith('Retry: done')")
    assert feed.ask("")["retries"] == [feed.ids[0]]
    note = feed.ask("/notes")["notes"][0]
    assert (note["who"], note["why"]) == ("ann", "the index has room again")
    page.until("document.querySelector('#notes').children.length === 2")


def test_a_refresh_leaves_the_focus_where_it_is(page: chromium.Page) -> None:
    """A keyboard user keeps the focus on a row when the page refreshes every few seconds."""
    _open(page)
    _focus(page, "Park the next")
    page.js("window.before = document.activeElement")
    page.js("document.dispatchEvent(new Event('visibilitychange'))")  # looks at once
    page.until(
        "performance.getEntriesByType('resource').filter((each) => "
        "each.name.endsWith('/notes')).length > 1"
    )
    assert page.js("document.activeElement === window.before")


def test_everything_has_a_name(page: chromium.Page) -> None:
    """Buttons, fields, tables and regions have names for screen readers."""
    _open(page)
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    wanted = {"button", "textbox", "table", "region", "link"}
    found = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in wanted
    ]
    assert len(found) > 15
    assert [role for role, name in found if not name.strip()] == []


def _look(page: chromium.Page, host: Server, key: str, view: str, feed: str = "main") -> None:
    """Open a *view* of *feed*, and sign in with *key*."""
    page.open(f"{host.url}console/?feed={feed}#/{view}")
    page.js("document.querySelector('#sign-in').click()")
    page.until("!!document.querySelector('#dialog')?.open")
    page.js(f"document.querySelector('#dialog-secret').value = {key!r}")
    page.js("document.querySelector('#dialog-do').click()")
    page.until("!document.querySelector('#dialog')")


def test_a_key_that_may_only_read_changes_nothing(
    browser: ClientConnection, tmp_path: Path
) -> None:
    """The page shows the data and names the missing role; it offers no action."""
    with Server(data=tmp_path) as host, chromium.tab(browser) as page:
        feed = Feed(host)
        key = make_key(host, "--role", "read")
        _look(page, host, key, "consumers")
        _open(page)
        page.until("document.querySelector('#new-consumer-card').textContent.includes('yours has')")
        missing = page.js("document.querySelector('#new-consumer-card').textContent")
        assert "has the role admin; yours has read." in missing
        assert not page.js("document.querySelector('#consumer :is(td, .actions) button')")
        assert feed.host.url in page.js("location.href") and key not in page.js("location.href")


def test_a_key_is_revoked_by_keyboard_alone(browser: ClientConnection, tmp_path: Path) -> None:
    """No reason is asked for, because none is kept; it stays in the list."""
    with Server(data=tmp_path) as host, chromium.tab(browser) as page:
        id_ = make_key(host, "--role", "read", "--label", HOSTILE).split("_")[1]
        own = make_key(host, "--role", "admin", "--role", "read")
        _look(page, host, own, "keys")
        page.until("document.querySelector('#keys').children.length === 2")
        rows = {row[0]: row[1:4] for row in _rows(page, "keys")}
        assert rows[id_] == ["holds", "read", "all of the feed"]
        _focus(page, f"Revoke {id_}")
        page.press("Enter")
        assert id_ in page.js("document.querySelector('#dialog-says').textContent")
        page.until("document.activeElement.id === 'dialog-do'")
        page.press("Enter")
        page.until("document.querySelector('#keys').textContent.includes('revoked')")
        assert page.js("document.images.length") == 1


def _host_key(host: Server, *options: str) -> str:
    return make_key(host, "--host", "--role", "admin", "--role", "read", *options)


def test_a_feed_is_created_and_deleted_by_keyboard_alone(
    browser: ClientConnection, tmp_path: Path
) -> None:
    """The form shows its request; a deletion needs the name; only permitted feeds are shown."""
    with Server("--feeds", "main,team-b", data=tmp_path) as host, chromium.tab(browser) as page:
        key = _host_key(host, "--feeds", "team-a-")
        _look(page, host, key, "feeds", "team-a-1")
        page.until("!!document.querySelector('#new-name')")
        _focus_id(page, "new-name")
        page.write("team-a-1")
        leave = "document.querySelector('#new-leave')"
        page.js(f"{leave}.value = 'on'; {leave}.form.dispatchEvent(new Event('input'))")
        curl = page.js("document.querySelector('#new-curl').textContent")
        assert f"-X PUT {host.url}feeds/team-a-1 " in curl and '{"leave":true}' in curl
        assert f"tidings feeds create team-a-1 --leave on --url {host.url[:-1]}" == page.js(
            "document.querySelector('#new-command').textContent"
        )
        _focus_id(page, "new-name")
        page.press("Enter")
        page.until("document.querySelector('#notice').textContent === 'team-a-1 is created.'")
        page.until("document.querySelector('#feeds').children.length === 1")
        ((name, state, _, by, _),) = _rows(page, "feeds")
        assert (name, state, by) == ("team-a-1", "live", f"key {key.split('_')[1]}")
        found = partial(httpx.get, f"{host.url}feeds/team-a-1", auth=("", key))
        assert found().json()["settings"]["leave"] is True

        page.until("document.querySelector('#badge').textContent === 'OK'")
        _focus(page, "Delete team-a-1")
        page.press("Enter")
        page.until("document.activeElement.id === 'dialog-confirm'")
        page.write("team-a")
        assert page.js("document.querySelector('#dialog-do').disabled")
        page.write("-1")
        page.press("Enter")
        page.until("document.querySelector('#badge').textContent === 'deleted'")
        assert "team-a-1 was deleted" in page.js("document.querySelector('#unseen').textContent")
        assert found().json()["state"] != "live"


def test_a_feed_that_may_not_be_created_is_reported(
    browser: ClientConnection, tmp_path: Path
) -> None:
    """The form shows the rule, and keeps what was entered."""
    with Server(data=tmp_path) as host, chromium.tab(browser) as page:
        _look(page, host, _host_key(host, "--feeds", "team-a-"), "feeds", "team-a-1")
        page.until("!!document.querySelector('#new-name')")
        _focus_id(page, "new-name")
        page.write("orders")
        page.press("Enter")
        page.until("document.querySelector('#new-error').textContent")
        trouble = page.js("document.querySelector('#new-error').textContent")
        assert trouble.startswith("key: does not permit")
        assert page.js("document.querySelector('#new-name').value") == "orders"
        assert _rows(page, "feeds") == []


def test_the_live_page_offers_feeds_and_says_that_one_was_deleted(
    browser: ClientConnection, tmp_path: Path
) -> None:
    """The names are those that the password permits, and the page does not try again."""
    with Server("--feeds", "main,gone", data=tmp_path) as host, chromium.tab(browser) as page:
        url = f"{host.url}feeds/gone"
        httpx.delete(url, params={"confirm": "gone"}).raise_for_status()
        page.open(f"{host.url}console/?feed=gone")
        page.until("document.querySelector('#badge').textContent === 'deleted'")
        page.until("document.querySelector('#unseen').textContent === 'The feed gone was deleted.'")
        assert page.js("document.querySelector('#plug').disabled")
        names = "[...document.querySelector('#feed').options].map((each) => each.value).join()"
        page.until(f"{names} === 'gone,main,'")


def _focus_id(page: chromium.Page, name: str) -> None:
    page.js(f"document.querySelector('#{name}').focus()")
