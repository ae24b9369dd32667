"""Rule 10.3: one credential of any kind closes all of a feed, on every route and transport."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from websockets.sync.client import connect

from tests.hosts import make_key
from tidings.client.cli.main import main
from tidings.http.routes import HTTP_ROUTES, SERVER_ROUTES
from tidings.http.wire import DEFAULT_PATH
from tidings.server.running import Server

PASSWORD = "a password of the feed"
PATIENCE_S = 180.0  # for an answer of a busy machine
SUBSCRIBE = {"action": "subscribe"}
REGISTER = {"instance": "i", "service": "s", "changeKind": {"resource": "vm", "subResources": []}}
# `apache2-utils` made it: user foo, password bar, cost 5.
HTPASSWD = "foo:$2y$05$3nMQgQ1wyMJjgVHYtZ0QYuEQlAtzM7I0F4JY8g2Y6sdQzIdvPp7zG\n"
GUARDED = [
    route
    for route in (*HTTP_ROUTES, *SERVER_ROUTES)
    if route.need.role is not None and route.path != DEFAULT_PATH
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server("--resource", "vm:nic=/vms", data=tmp_path / "data") as running:
        yield running


def ask(server: Server, method: str, path: str, headers: Mapping[str, str] = {}) -> httpx.Response:
    filled = path.format(feed="main", name="n", action="pause", id="1", part="id")
    more = {"content-type": "application/json", "accept": "text/event-stream", **headers}
    url = server.url.rstrip("/") + filled
    with httpx.stream(method, url, headers=more, timeout=PATIENCE_S) as answer:
        return answer


def operate(server: Server, *arguments: str, given: str | None = None) -> None:
    done = CliRunner().invoke(main, [*arguments, *server.locator], input=given)
    assert done.exit_code == 0, done.output


def let_in(server: Server) -> list[str]:
    """Return the routes that answer a client that shows nothing."""
    return [
        route.key
        for route in GUARDED
        if route.path != "/feeds" and ask(server, route.method, route.path).status_code != 401
    ]  # only a credential of the host closes the list of feeds: test_feed_rights.py


def said(server: Server, message: object) -> str:
    """Return what *message* is answered on a WebSocket."""
    with connect(server.ws_url) as socket:
        socket.send(json.dumps(message))
        return str(socket.recv(timeout=PATIENCE_S))


def give_key(server: Server) -> None:
    make_key(server, "--role", "read", "--type", "video")


def give_password(server: Server, role: str) -> None:
    operate(server, "feed", "password", role, "--feed", "main", given=f"{PASSWORD}\n")


def give_user(server: Server) -> None:
    operate(server, "users", "import", "-", "--feed", "main", given=HTPASSWD)


CREDENTIALS = {
    "key": give_key,
    "read": lambda server: give_password(server, "read"),
    "ingest": lambda server: give_password(server, "ingest"),
    "user": give_user,
}


@pytest.mark.parametrize("kind", CREDENTIALS)
def test_P10_3_one_credential_closes_every_route(server: Server, kind: str) -> None:
    """This holds once the command that stored it has ended, and after a restart; health stays
    open."""
    assert ask(server, "GET", "/feeds/main/consumers").status_code == 200
    assert "subscribed" in said(server, SUBSCRIBE)
    CREDENTIALS[kind](server)

    assert let_in(server) == []
    for message in (SUBSCRIBE, REGISTER):
        assert "password" in said(server, message), message
    assert ask(server, "GET", "/health").status_code == 200
    server.stop()
    server.start()
    assert let_in(server) == []


def test_P10_3_a_feed_stays_closed_after_its_last_key(server: Server) -> None:
    """Revoking a key must not publish what it protected."""
    key = make_key(server, "--role", "read")
    operate(server, "keys", "revoke", key.split("_")[1])

    assert let_in(server) == []


_PATHS = [
    "/",
    "/feeds/main/ops",
    "/feeds/main/changes",
    "/feeds/main/consumers",
    "/feeds/main/pages",
]


@pytest.mark.parametrize("path", [*_PATHS, "/config", "/feeds/main/v1/stream/a"])
def test_P10_5_a_page_with_a_form_of_its_own_opens_no_dialog(server: Server, path: str) -> None:
    """A browser opens one for a Basic challenge, which other clients still get."""
    make_key(server, "--role", "read")
    headers = {"accept": "*/*", "authorization": "Basic Og=="}
    url = f"{server.url}{path[1:]}"
    other = httpx.get(url, headers=headers)
    page = httpx.get(url, headers={**headers, "x-requested-with": "page"})

    assert other.status_code == page.status_code == 401
    assert other.headers["www-authenticate"].startswith("Basic ")
    assert page.headers["www-authenticate"] == 'Bearer realm="tidings"'


def test_P10_3_other_feeds_stay_open(tmp_path: Path) -> None:
    """A credential closes only its own feed."""
    with Server("--feeds", "main,other", data=tmp_path / "data") as server:
        make_key(server, "--role", "read")

        assert ask(server, "GET", "/feeds/main/consumers").status_code == 401
        assert ask(server, "GET", "/feeds/other/consumers").status_code == 200


def test_P10_3_a_unix_socket_is_closed_unless_it_is_opened(tmp_path: Path) -> None:
    """It is for proxies with clients from anywhere; the message has the command to set a
    password."""
    at = tmp_path / "feed.sock"
    transport = httpx.HTTPTransport(uds=str(at))
    with Server("--unix-socket", str(at)) as closed, httpx.Client(transport=transport) as client:
        answer = client.get("http://localhost/feeds/main/consumers")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "no_password_set")
        assert f"tidings feed password read --feed main --data {closed.data}" in closed.errors()
    with (
        Server("--unix-socket", str(at), "--setting", "TIDINGS_OPEN=true") as opened,
        httpx.Client(transport=httpx.HTTPTransport(uds=str(at))) as client,
    ):
        assert client.get("http://localhost/feeds/main/consumers").status_code == 200
        assert opened.errors() == ""
