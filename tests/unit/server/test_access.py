"""Rules 10.3 and 23: credentials open and close feeds, and permit to create and delete them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from websockets.sync.client import connect

from tests.hosts import make_key
from tidings.client import AccessDenied, Feeds
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
    ]  # only a credential of the host closes the list of feeds, see below


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


OPERATION = {"event": "insert", "type": "video", "id": "x"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server with the feeds `main` and `team-b`, closed by the keys of the host."""
    with Server("--feeds", "main,team-b", data=tmp_path_factory.mktemp("data")) as server:
        make_key(server, "--host", "--role", "read")
        yield server


_PATHS = [
    "/",
    "/feeds/main/ops",
    "/feeds/main/changes",
    "/feeds/main/consumers",
    "/feeds/main/pages",
]


@pytest.mark.parametrize("path", [*_PATHS, "/config", "/feeds/main/v1/stream/a"])
def test_P10_5_a_page_with_a_form_of_its_own_opens_no_dialog(host: Server, path: str) -> None:
    """A browser opens one for a Basic challenge, which other clients still get."""
    headers = {"accept": "*/*", "authorization": "Basic Og=="}
    url = f"{host.url}{path[1:]}"
    other = httpx.get(url, headers=headers)
    page = httpx.get(url, headers={**headers, "x-requested-with": "page"})

    assert other.status_code == page.status_code == 401
    assert other.headers["www-authenticate"].startswith("Basic ")
    assert page.headers["www-authenticate"] == 'Bearer realm="tidings"'


def key_of_host(server: Server, *roles: str, feeds: tuple[str, ...] = ()) -> str:
    words = [word for role in roles for word in ("--role", role)]
    words += [word for prefix in feeds for word in ("--feeds", prefix)]
    return make_key(server, "--host", *words)


def names(api: Feeds) -> list[str]:
    return [record["feed"] for record in api.list()]


def refusal(request: Any) -> tuple[int, str]:
    with pytest.raises(AccessDenied) as refused:
        request()
    return refused.value.status, refused.value.code


def test_P23_10_a_prefix_restricts_every_request(host: Server) -> None:
    """Also posts and reads; the list has only the permitted feeds."""
    key = key_of_host(host, "read", "ingest", "admin", feeds=("team-a-", "test-"))
    with Feeds(host.url, password=key) as api:
        assert api.create("team-a-1")["by"] == f"key {key.split('_')[1]}"
        assert names(api) == ["team-a-1"]
        for forbidden in (
            lambda: api.create("team-b"),
            lambda: api.create("other"),
            lambda: api.show("team-b"),
            lambda: api.delete("team-b"),
        ):
            assert refusal(forbidden) == (403, "outside_key")
        auth = ("", key)
        answers = [
            httpx.post(f"{host.url}feeds/{name}/ops", json=OPERATION, auth=auth).status_code
            for name in ("team-a-1", "team-b")
        ]
        assert answers == [204, 403]
        assert api.delete("team-a-1")["state"] == "deleting"
        assert api.show("team-a-1")["settings"] is None


def test_P23_10_a_reader_changes_nothing(host: Server) -> None:
    with Feeds(host.url, password=key_of_host(host, "read")) as api:
        assert {"main", "team-b"} <= {*names(api)}
        assert api.show("main")["created_at"] is None
        for change in (lambda: api.create("x"), lambda: api.delete("main")):
            assert refusal(change) == (403, "outside_key")


def test_P23_10_an_administrator_need_not_read(host: Server) -> None:
    """The role `admin` alone shows records, so that a removal can be followed, but no data."""
    with Feeds(host.url, password=key_of_host(host, "admin")) as api:
        api.create("admins")
        assert "admins" in names(api)
        api.delete("admins")
        assert api.show("admins")["state"] in ("deleting", "deleted")
        assert refusal(lambda: api.ask("GET", "log")) == (403, "outside_key")


@pytest.mark.parametrize("feed", ["main", "orders"])
def test_P23_10_a_credential_of_a_feed_is_none_of_the_host(host: Server, feed: str) -> None:
    """It shows its own feed; anonymous callers see nothing."""
    key = make_key(host, "--role", "admin", "--role", "read", "--feed", "main")
    with Feeds(host.url, password=key) as api, Feeds(host.url) as anonymous:
        assert api.show("main")["state"] == "live"
        for request in (lambda: names(api), lambda: api.create(feed), lambda: api.delete("main")):
            assert refusal(request) == (401, "wrong_key")
        for request in (lambda: names(anonymous), lambda: anonymous.show("main")):
            assert refusal(request) == (401, "no_password_set")


def test_P23_10_on_an_open_host_a_feed_belongs_to_its_credentials(tmp_path: Path) -> None:
    """Other feeds can be created and deleted by every client."""
    with Server(data=tmp_path) as server, Feeds(server.url) as anonymous:
        anonymous.create("owned")
        anonymous.create("free")
        key = make_key(server, "--role", "admin", "--feed", "owned")
        for change in (lambda: anonymous.delete("owned"), lambda: anonymous.create("owned")):
            assert refusal(change) == (401, "no_password_set")
        assert anonymous.delete("free")["by"] == "anonymous"
        with Feeds(server.url, password=key) as owner:
            assert owner.create("owned", {"leave": True})["settings"]["leave"] is True
            assert owner.delete("owned")["by"] == f"key {key.split('_')[1]}"


def test_P23_11_a_deleted_feed_stays_deleted(tmp_path: Path) -> None:
    """Although the server names it; a new one is created by a request, and survives restarts."""
    server = Server("--feeds", "main,orders", data=tmp_path)
    with server, Feeds(server.url) as api:
        assert httpx.post(f"{server.url}feeds/orders/ops", json=OPERATION).status_code == 204
        api.delete("orders")
        api.create("made")
        server.stop()
        server.start()
        assert {"made", "main"} <= {*names(api)}
        assert api.show("orders")["state"] != "live"
        assert httpx.post(f"{server.url}feeds/orders/ops", json=OPERATION).status_code == 410
        assert api.create("orders")["number"] == 2
        server.stop()
        server.start()
        assert httpx.post(f"{server.url}feeds/orders/ops", json=OPERATION).status_code == 204
        assert api.show("orders")["number"] == 2


def test_commands_find_a_feed_that_was_created_again(tmp_path: Path) -> None:
    """`tidings feed` and `tidings keys` change the new feed, and name it as users do."""
    with Server("--feeds", "main,orders", data=tmp_path) as server, Feeds(server.url) as api:
        api.delete("orders")
        api.create("orders")
        place = ["--feed", "orders", *server.locator]
        done = CliRunner().invoke(main, ["feed", "set", *place, "--leave", "on"])
        assert done.exit_code == 0 and done.output.splitlines()[0].split() == ["feed", "orders"]
        key = make_key(server, "--role", "read", "--feed", "orders")
        with Feeds(server.url, password=key) as reader:
            assert reader.show("orders")["settings"]["leave"] is True
