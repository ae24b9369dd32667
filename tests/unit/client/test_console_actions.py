"""What operators do to consumers and relays in the console, with a key and with a password."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection

from tests.unit.client import chromium
from tests.unit.client.console_tab import Host, Tab
from tidings.server.running import Server

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with Server(data=tmp_path_factory.mktemp("data")) as server:
        yield Host(server)


class Actions:
    """The consumer *name* of a host, which has failed, opened in a tab."""

    def __init__(self, tab: Tab, name: str) -> None:
        self._tab, self._name, self._http = tab, name, tab.host.http
        operations = [{"event": "insert", "type": "video", "id": f"x{n}"} for n in range(9)]
        tab.host.put(f"consumers/{name}", **{"from": "now"})
        answer = self._post("ops", operations, prefer="return=representation")
        self.ids = answer["ids"]
        self.park(self.ids[0])
        self.fail(self.ids[1])

    def _post(self, path: str, body: Any, **headers: str) -> Any:
        return self._http.post(path, json=body, headers=headers).raise_for_status().json()

    def fail(self, id_: str) -> None:
        at = f"consumers/{self._name}"
        fence = self._post(f"{at}/lease", {"worker": "w"})["fence"]
        self._post(f"{at}/fail", {"fence": fence, "id": id_, "error": "no room"})

    def park(self, id_: str) -> None:
        self.fail(id_)
        self._post(f"consumers/{self._name}/park", {"why": "w", "by": "b"})

    def press(self, button: str, done: str, **fields: str) -> dict[str, Any]:
        """Press *button*, give a reason, and return the consumer afterwards."""
        self._tab.press(button)
        self._tab.fill("dialog", **fields, why=f"because of {button}", by="ann")
        self._tab.page.press("Enter")
        self._tab.said(f"{done}: done to {self._name}.")
        note = self._tab.host.get(f"consumers/{self._name}/notes")["notes"][0]
        assert (note["who"], note["why"]) == ("ann", f"because of {button}")
        found = self._tab.host.get(f"consumers/{self._name}")
        assert isinstance(found, dict)
        return found


@pytest.mark.parametrize("credential", ["key", "password"])
def test_every_action_on_a_consumer(host: Host, browser: ClientConnection, credential: str) -> None:
    """Each is done after a question, and is kept with its reason."""
    with chromium.tab(browser) as page:
        tab = Tab(page, host)
        name = f"failed-{credential}"
        actions = Actions(tab, name)
        ids = actions.ids
        tab.show("consumers", getattr(host, credential))
        tab.press(f"Open {name}")
        assert actions.press("Pause", "Pause")["paused"]
        assert not actions.press("Resume", "Resume")["paused"]
        assert actions.press("Skip the next", "Skip the next")["position"] == ids[1]
        actions.fail(ids[2])
        assert actions.press("Park the next", "Park the next")["parked"] == 2
        assert actions.press(f"Retry {ids[0]}", "Retry")["retries"] == [ids[0]]
        assert actions.press(f"Drop {ids[0]}", "Drop")["parked"] == 1
        assert actions.press("Retry all", "Retry all")["retries"] == [ids[2]]
        assert actions.press("Drop all", "Drop all")["parked"] == 0
        assert actions.press("Move", "Move", position=ids[-2])["position"] == ids[-2]


@pytest.fixture(scope="module")
def relay() -> Iterator[Host]:
    """Yield the host of a relay that has copied one page."""
    with Server() as upstream, Server("--chain-from", f"{upstream.url}feeds/main") as server:
        operation = {"event": "insert", "type": "video", "id": "x"}
        httpx.post(f"{upstream.url}ops", json=operation).raise_for_status()
        yield Host(server)


def _act_on_relay(tab: Tab, action: str) -> None:
    tab.press(action)
    tab.page.until("document.activeElement.id === 'dialog-do'")
    assert "tidings relays " in tab.text("#dialog-command")
    tab.page.press("Enter")


@pytest.mark.parametrize("credential", ["key", "password"])
def test_every_action_on_a_relay(relay: Host, browser: ClientConnection, credential: str) -> None:
    """An action that does not fit is answered with its rule."""
    with chromium.tab(browser) as page:
        tab = Tab(page, relay)
        tab.show("overview", getattr(relay, credential))
        _act_on_relay(tab, "Resume")
        tab.said("Resume was not done to main: ", "#trouble")
        for action, status in (
            ("Pause", "paused"),
            ("Resume", "running"),
            ("Shut down", "shutdown"),
            ("Start", "running"),
        ):
            _act_on_relay(tab, action)
            tab.said(f"{action}: done to main.")
            tab.said(status, "#relay-facts")


def test_a_reader_is_offered_no_action_on_a_relay(relay: Host, browser: ClientConnection) -> None:
    with chromium.tab(browser) as page:
        tab = Tab(page, relay)
        tab.show("overview", relay.reader)
        tab.said("pages behind", "#relay-facts")
        assert not page.js("document.querySelector('#relay button')?.checkVisibility()")
