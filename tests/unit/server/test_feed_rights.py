"""The rights to create, show and delete feeds of a server, and the effect of a restart (P23)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tests.hosts import make_key
from tidings.client import AccessDenied, Feeds
from tidings.client.cli.main import main
from tidings.server.running import Server

OPERATION = {"event": "insert", "type": "video", "id": "x"}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server with the feeds `main` and `team-b`, closed by the keys of the host."""
    with Server("--feeds", "main,team-b", data=tmp_path_factory.mktemp("data")) as server:
        make_key(server, "--host", "--role", "read")
        yield server


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
