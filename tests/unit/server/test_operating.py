"""The operator's socket: the operations, their errors, and the cached values of the server."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from tests.hosts import make_key
from tidings.server import operating
from tidings.server.processes import Problem
from tidings.server.running import Server

SECRET = "a secret of the operator"


def perform(server: Server, operation: str, **given: Any) -> tuple[int, Any]:
    names = {"feed": "main", "name": "reader", "id": "x"}
    status, body = operating.perform(
        server.data, operation, names=names, given=given, headers={}, operator="eve"
    )
    return status, json.loads(body)


@pytest.mark.parametrize(
    "operation",
    [
        "ConsumerRouter.admit",
        "ConsumerRouter.consumers",
        "ConsumerRouter.__call__",
        "ConsumerRouter.declared",
        "KeyRouter._within_rights",
        "LocalAdmin._change",
        "Host.stop",
        "Operations.ingest",
        "x",
        "",
    ],
)
def test_only_declared_operations_of_the_managed_classes_are_performed(
    server: Server, operation: str
) -> None:
    status, body = perform(server, operation)

    assert (status, body["error"]["code"]) == (404, "unknown_path")


def test_an_error_has_the_form_of_the_api(server: Server) -> None:
    status, body = perform(server, "ConsumerRouter.pause_consumer", by="eve", why="")

    asked = httpx.post(
        f"{server.url}feeds/main/consumers/reader/pause", json={"by": "eve", "why": ""}
    )
    assert (status, body) == (asked.status_code, asked.json())
    assert (body["error"]["field"], body["error"]["value"]) == ("why", "''")


def test_an_error_about_a_secret_does_not_contain_it(server: Server) -> None:
    for operation, given in (
        ("LocalAdmin.set_password", {"role": "read", "password": SECRET + "\ud800"}),
        ("LocalAdmin.import_users", {"file": SECRET}),
        ("ReplicaRouter.set_relay_password", {"password": SECRET}),
    ):
        status, body = perform(server, operation, **given)

        assert status in (400, 404)
        assert SECRET not in json.dumps(body)


def test_a_request_that_is_not_one_does_not_end_the_server(server: Server) -> None:
    """The connection is closed without an answer."""
    for line in (b"", b"x\n", b"[]\n", b"{}\n", b'{"call": "ConsumerRouter.list_consumers"}\n'):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(operating.TIMEOUT_S)
            connection.connect(str(server.data / operating.SOCKET))
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""
    assert perform(server, "ConsumerRouter.list_consumers")[0] == 200


def asked(server: Server, key: str) -> int:
    return httpx.get(f"{server.url}feeds/main", auth=("", key)).status_code


def test_the_server_uses_a_change_at_once() -> None:
    """Without a wait for the end of what it has cached: of a profile, of a key."""
    with Server() as server:
        key = make_key(server, "--role", "read")
        assert asked(server, key) == 200

        _, settings = perform(server, "LocalAdmin.change_settings", leave=True)
        shown = httpx.get(f"{server.url}feeds/main", auth=("", key)).json()
        assert settings["leave"] is shown["settings"]["leave"] is True

        (found,) = perform(server, "KeyRouter.list_keys")[1]["keys"]
        names = {"feed": "main", "id": found["id"]}
        operating.perform(
            server.data, "KeyRouter.revoke_key", names=names, given={}, headers={}, operator=""
        )
        assert asked(server, key) == 401


def test_a_stopped_server_performs_what_needs_neither_its_memory_nor_its_options() -> None:
    with Server() as server:
        server.stop()
        assert perform(server, "ConsumerRouter.list_consumers")[0] == 200
        for operation in sorted(operating.NEEDS_SERVER):
            with pytest.raises(Problem, match="no server is running"):
                perform(server, operation if "." in operation else f"{operation}.x")
        server.start()
        assert perform(server, "FeedClients.list_clients")[0] == 200
