"""The forms and actions of the console in a real browser, with a key and with passwords."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import ClientConnection

from tests.hosts import make_key
from tests.unit.client import chromium
from tests.unit.client.console_tab import HOSTILE, Host, Tab
from tidings.server.running import Server

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    private = "TIDINGS_HOOKS_PRIVATE=true"
    with Server("--setting", private, data=tmp_path_factory.mktemp("data")) as server:
        yield Host(server)


@pytest.fixture
def tab(browser: ClientConnection, host: Host) -> Iterator[Tab]:
    with chromium.tab(browser) as page:
        yield Tab(page, host)


EITHER = pytest.mark.parametrize("credential", ["key", "password"])


@EITHER
def test_an_event_is_posted(host: Host, tab: Tab, credential: str) -> None:
    """With the request and the command that do the same; its id is shown."""
    tab.show("post", getattr(host, credential))
    tab.fill("post", event="update", type="video", id=HOSTILE, parents="user/42,a/b", tags="t")
    tab.fill("post", data='{"title": "Films"}')
    assert "update of video/<img" in tab.text("#post-effect")
    assert f"{host.url}feeds/main/ops" in tab.text("#post-curl")
    assert '-u ":$TIDINGS_PASSWORD"' in tab.text("#post-curl")
    assert f"--url {host.url.rstrip('/')} --feed main" in tab.text("#post-command")
    assert getattr(host, credential) not in tab.text("body")
    tab.press("Post")
    tab.said("Posted update of video/")
    id_ = host.get("log")["current"]
    assert id_ in tab.text("#notice")
    (entry,) = host.http.get("log", params={"from": id_}).json()["entries"]
    data = entry["data"]
    assert (data["id"], data["parents"]) == (HOSTILE, ["user/42", "a/b"])
    assert (data["tags"], data["data"]) == (["t"], {"title": "Films"})
    assert tab.page.js("document.images.length") == 1


def test_an_event_is_posted_by_keyboard_alone(host: Host, tab: Tab) -> None:
    """Tab reaches every field, and Enter sends the form."""
    tab.show("post", host.key)
    tab.page.until("document.activeElement.id === 'post-event'")
    reached = ["post-event"]
    while "post-do" not in reached:
        tab.page.press("Tab")
        reached.append(tab.page.js("document.activeElement.id"))
        assert len(reached) < 60
        if reached[-1] in ("post-type", "post-id"):
            tab.page.write("typed")
    names = ("event", "type", "id", "parents", "tags", "timestamp", "data", "curl", "command")
    assert {f"post-{name}" for name in names} <= {*reached}
    tab.page.press("Enter")
    tab.said("Posted insert of typed/typed")


def test_errors_are_next_to_their_fields(host: Host, tab: Tab) -> None:
    """Errors of the form and of the host; nothing is posted."""
    before = host.get("log")["end"]
    tab.show("post", host.key)
    tab.fill("post", data="{")
    tab.press("Post")
    tab.said("is required", "#post-type-error")
    tab.said("is not JSON", "#post-data-error")
    assert tab.page.js("document.activeElement.id") == "post-type"
    assert (
        tab.page.js("document.querySelector('#post-type').getAttribute('aria-invalid')") == "true"
    )
    tab.fill("post", type="video", id="x", data="", timestamp="noon")
    tab.press("Post")
    tab.said("must be an RFC 3339 date-time", "#post-timestamp-error")
    tab.page.until("document.activeElement.id === 'post-timestamp'")
    assert (
        tab.page.js("document.querySelector('#post-timestamp-error').getAttribute('role')")
        == "alert"
    )
    assert host.get("log")["end"] == before


def test_who_may_only_read_is_offered_no_form(host: Host, tab: Tab) -> None:
    """The view names the role that is missing."""
    tab.show("post", host.reader)
    tab.said("has the role ingest; yours has read.", "#post-card")
    assert not tab.page.js("document.querySelector('#post')")


def test_a_restricted_key_posts_to_its_part(host: Host, tab: Tab) -> None:
    """The view names the part; the host refuses objects outside it."""
    tab.show("post", make_key(host.server, "--role", "ingest", "--parent", "user/42"))
    tab.said("restricted to the parents user/42", "#post-card")
    tab.fill("post", type="video", id="x", parents="user/43")
    tab.press("Post")
    tab.said("operations[0]", "#post-error")
    tab.fill("post", parents="user/42")
    tab.press("Post")
    tab.said("Posted insert")


@EITHER
def test_a_consumer_is_created_and_changed(host: Host, tab: Tab, credential: str) -> None:
    """The form says that the name exists and what changes; the position stays."""
    name = f"search-{credential}"
    tab.show("consumers", getattr(host, credential))
    tab.fill("new-consumer", name=name, from_="now", types="video")
    assert f"Creates the consumer {name}, which starts with the next event" in tab.text(
        "#new-consumer-effect"
    )
    tab.press("Create")
    tab.said(f"{name} is created.")
    first = host.get(f"consumers/{name}")
    assert first["types"] == ["video"]

    tab.press(f"Open {name}")
    tab.press(f"Edit {name}")
    tab.said(f"{name} exists already.", "#new-consumer .note")
    tab.fill("new-consumer", types="", parents="user/42")
    tab.said("types video → every type", "#new-consumer .changes")
    assert "--update" in tab.text("#new-consumer-command")
    tab.page.js("document.querySelector('#new-consumer').requestSubmit()")
    tab.said(f"{name} is changed.")
    changed = host.get(f"consumers/{name}")
    assert (changed.get("types"), changed["parents"]) == (None, ["user/42"])
    assert changed["position"] == first["position"]


def test_a_consumer_that_appears_in_the_meantime_is_not_overwritten(host: Host, tab: Tab) -> None:
    """The host refuses, and the form then shows what would change."""
    tab.show("consumers", host.key)
    tab.page.until("!!document.querySelector('#new-consumer')")
    tab.fill("new-consumer", name="late", types="film")
    host.put("consumers/late", types=["video"])
    tab.page.js("document.querySelector('#new-consumer').requestSubmit()")
    tab.said("exists already", "#new-consumer")
    tab.said("types video → film", "#new-consumer .changes")
    assert host.get("consumers/late")["types"] == ["video"]


def test_a_consumer_is_deleted(host: Host, tab: Tab) -> None:
    """After a question; reason and name are kept."""
    host.put("consumers/old")
    tab.show("consumers", host.key)
    tab.press("Open old")
    tab.press("Delete")
    tab.fill("dialog", why="not needed", by="ann")
    url = host.url.rstrip("/")
    command = f"tidings consumers delete old --why 'not needed' --by ann --url {url} --feed main"
    assert tab.text("#dialog-command") == command
    assert "why=not+needed&by=ann" in tab.text("#dialog-curl")
    tab.page.press("Enter")
    tab.said("Delete: done to old.")
    assert host.http.get("consumers/old").status_code == 404
    (note,) = host.get("consumers/old/notes")["notes"]
    assert (note["who"], note["what"], note["why"]) == ("ann", "delete", "not needed")


def _secret(tab: Tab) -> str:
    tab.page.until("!!document.querySelector('#reveal')")
    return str(tab.page.js("document.querySelector('#secret').value"))


@EITHER
def test_a_webhook_is_created_and_changed(host: Host, tab: Tab, credential: str) -> None:
    """Its secret is shown once, with a warning for an address that is not called."""
    name = f"films-{credential}"
    tab.show("webhooks", getattr(host, credential))
    tab.fill("new-hook", name=name, url="ftp://a.example/x")
    tab.press("Create")
    tab.said("must begin with http:// or https://", "#new-hook-url-error")
    tab.fill("new-hook", url="http://169.254.169.254/x", attempts="4", types="film")
    assert "After 4 failed attempts a message is parked" in tab.text("#new-hook-effect")
    tab.press("Create")
    first = _secret(tab)
    assert first.startswith("whsec_")
    assert "does not call the address" in tab.text("#reveal")
    tab.press("Close")
    tab.page.until("!document.querySelector('#reveal')")
    assert first not in tab.text("body")
    hook = host.get(f"hooks/{name}")
    assert (hook["attempts"], hook["types"]) == (4, ["film"])

    tab.press(f"Edit {name}")
    tab.fill("new-hook", url="https://b.example/x", format="debezium")
    tab.said("format cloudevents → debezium", "#new-hook .changes")
    tab.page.js("document.querySelector('#new-hook').requestSubmit()")
    tab.said(f"{name} is changed.")
    changed = host.get(f"hooks/{name}")
    assert (changed["url"], changed["format"], changed["attempts"]) == (
        "https://b.example/x",
        "debezium",
        4,
    )


def test_the_attempts_of_a_webhook_are_shown(host: Host, tab: Tab, tmp_path: Path) -> None:
    """With the answer of the receiver, and the time of the next attempt."""
    with chromium.files(tmp_path) as receiver:  # answers a POST with 501
        host.put("hooks/busy", url=f"{receiver}/events?secret=s3cret")
        tab.show("webhooks", host.key)
        tab.press("Open busy")
        tab.said("None since the server started", "#hook")
        host.http.post("ops", json={"event": "insert", "type": "video", "id": "a1"})
        tab.said("501", "#attempts")
        (row,) = tab.page.js(
            "[...document.querySelector('#attempts').children].map((row) => row.innerText)"
        )
        assert host.get("log")["current"] in row
        assert "s3cret" not in row
        busy = '#hooks tr:has([aria-label="Open busy"])'
        assert tab.text(f"{busy} td:nth-child(6)").startswith("20")  # the year
        tab.press("Parked messages and position")
        tab.page.until("document.querySelector('#consumer-title')?.textContent === 'busy'")
        assert "consumer=busy" in tab.page.js("location.search")


@EITHER
def test_a_webhook_is_rotated_and_deleted(host: Host, tab: Tab, credential: str) -> None:
    """Both after a question; the reason of a deletion is kept."""
    name = f"gone-{credential}"
    host.put(f"hooks/{name}", url="https://a.example/x")
    tab.show("webhooks", getattr(host, credential))
    tab.press(f"Open {name}")
    tab.press("Rotate the secret")
    tab.page.until("document.activeElement.id === 'dialog-do'")
    tab.page.press("Enter")
    assert _secret(tab).startswith("whsec_")
    tab.press("Close")
    assert host.get(f"hooks/{name}")["secrets"] == 2

    tab.press("Delete")
    tab.fill("dialog", why="moved", by="ann")
    tab.page.press("Enter")
    tab.said(f"{name} is deleted.")
    assert host.http.get(f"hooks/{name}").status_code == 404
    assert host.get(f"consumers/{name}/notes")["notes"][0]["why"] == "moved"


@EITHER
def test_a_key_is_created_and_shown_once(host: Host, tab: Tab, credential: str) -> None:
    """It has the rights that were chosen, and is in the list without its secret."""
    tab.show("keys", getattr(host, credential))
    tab.page.until("!!document.querySelector('#new-key')")
    tab.press("Create")
    tab.said("choose at least one role", "#new-key-roles-error")
    tab.page.js("document.querySelector('#new-key-roles [value=read]').click()")
    tab.fill("new-key", parents="user/42", expires="soon", label=f"shop {credential}")
    tab.press("Create")
    tab.said("must be a duration", "#new-key-expires-error")
    tab.fill("new-key", expires="24h")
    assert "for the parents user/42 only, valid for 24h" in tab.text("#new-key-effect")
    tab.press("Create")
    made = _secret(tab)
    tab.press("Close")
    tab.said(f"shop {credential}", "#keys")
    assert made not in tab.text("body")
    found = httpx.get(f"{host.url}feeds/main/access", auth=("", made)).json()
    assert found["roles"] == [{"role": "read", "types": None, "parents": ["user/42"]}]


def test_a_key_of_the_host_is_created_and_revoked(browser: ClientConnection) -> None:
    """With a key of the host, for the feeds with a prefix."""
    with Server() as server, chromium.tab(browser) as page:
        host = Host(server)
        tab = Tab(page, host)
        tab.show("keys", make_key(server, "--host", "--role", "admin", "--role", "read"))
        tab.press("Keys of the host")
        page.until("!!document.querySelector('#new-key-roles [value=read]')")
        page.js("document.querySelector('#new-key-roles [value=read]').click()")
        tab.fill("new-key", feeds="team-a-")
        assert "begin with team-a- with the role read" in tab.text("#new-key-effect")
        assert "keys create --host --feeds team-a-" in tab.text("#new-key-command")
        tab.press("Create")
        made = _secret(tab)
        tab.press("Close")
        tab.said("feeds team-a-", "#keys")
        tab.press(f"Revoke {made.split('_')[1]}")
        page.until("document.activeElement.id === 'dialog-do'")
        page.press("Enter")
        tab.said("revoked", "#keys")


def test_a_key_gets_no_other_roles_than_its_creator_has(host: Host, tab: Tab) -> None:
    """The view does not offer them."""
    tab.show("keys", make_key(host.server, "--role", "admin"))
    offered = "[...document.querySelectorAll('#new-key-roles input:enabled')].map((e) => e.value)"
    tab.page.until(f"!!document.querySelector('#new-key') && {offered}.length < 5")
    assert tab.page.js(offered) == ["consume", "erase", "admin"]


@pytest.mark.parametrize(
    ("view", "what"),
    [
        ("consumers", "create and change consumers"),
        ("webhooks", "create and change webhooks"),
        ("keys", "create keys"),
    ],
)
def test_a_reader_is_told_which_role_is_missing(host: Host, tab: Tab, view: str, what: str) -> None:
    tab.show(view, host.reader)
    tab.said(
        f"To {what}, sign in with a credential that has the role admin; yours has read.", "#view"
    )
    assert not tab.page.js("document.querySelector('form.form:not(#new)')")


@EITHER
def test_clients_are_shown(host: Host, tab: Tab, credential: str) -> None:
    """With their transport, filter and the id of their key, never the key."""
    url, query = f"{host.url}feeds/main/ops", {"from": "now", "types": "video"}
    with httpx.stream("GET", url, params=query, auth=("", host.key)) as stream:
        assert stream.status_code == 200
        tab.show("clients", getattr(host, credential))
        tab.said(host.key.split("_")[1], "#clients")
        assert "types video" in tab.text("#clients")
        assert "1 connected" in tab.text("#clients-count")
        assert host.key not in tab.text("body")


@pytest.mark.parametrize("view", ["post", "consumers", "webhooks", "clients", "keys", "feeds"])
def test_a_phone_shows_the_forms_without_scrolling_sideways(
    host: Host, tab: Tab, view: str
) -> None:
    """Every input has a label."""
    tab.show(view, host.key, width=360)
    tab.page.until("!!document.querySelector('#view .card')")
    tab.page.until("!!document.querySelector('form.form, #clients')")
    assert tab.page.js("document.documentElement.scrollWidth") <= 360
    unnamed = (
        "[...document.querySelectorAll('input, select, textarea')]"
        ".filter((each) => !each.labels.length && !each.ariaLabel).map((each) => each.id)"
    )
    assert tab.page.js(unnamed) == []


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
