"""Rows O5 to O8 and O12: passwords, at a host that requires them, and its log."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.compat.oplog.feed import ask, op
from tests.compat.oplog.wire import JSON, PATIENCE_S, STREAM, Answer, Connection, until
from tests.hosts import wanted
from tests.unit.client.command import tidings
from tidings.server.running import Server

READ, INGEST, WRONG = "read: password", "ingest password", "a wrong password"


@dataclass(frozen=True)
class Guarded:
    """A host and its feed with both passwords, and the folder with all its files."""

    host: Server
    folder: Path

    def post(self, password: str | None, kind: str = JSON, user: str = "") -> Answer:
        headers = {"content-type": kind, **basic(password, user)}
        return ask(self.host.port, "POST", "/", headers, json.dumps(op()).encode())

    def read(self, password: str | None, user: str = "", accept: str = STREAM) -> Answer:
        """Return the answer to a GET; leave a stream at once."""
        headers = {"accept": accept, **basic(password, user)}
        connection = Connection(self.host.port, "GET", "/", headers.items())
        connection.close()
        return connection.answer

    def subscribe(self, **fields: str) -> Any:
        with connect(self.host.ws_url, open_timeout=PATIENCE_S) as socket:
            socket.send(json.dumps({"action": "subscribe", **fields}))
            return json.loads(socket.recv(PATIENCE_S))

    def feed(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of the operator's command."""
        done = tidings("feed", *arguments, *self.host.locator, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


def basic(password: str | None, user: str = "") -> dict[str, str]:
    if password is None:
        return {}
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


@pytest.fixture(scope="module")
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    secrets, data = tmp_path_factory.mktemp("secrets"), tmp_path_factory.mktemp("data")
    options = []
    for role, password in (("read", READ), ("ingest", INGEST)):
        file = secrets / role
        file.write_text(f"{password}\n")
        options += [f"--{role}-password-file", str(file)]
    with wanted(request.config)(*options, data=data) as host:
        yield Guarded(host, data)


@pytest.mark.parametrize("user", ["", "anybody"])
def test_O05_any_user_with_the_right_password(guarded: Guarded, user: str) -> None:
    """Posts and reads."""
    assert guarded.post(INGEST, user=user).status == 204
    assert guarded.read(READ, user=user).status == 200


@pytest.mark.parametrize("password", [None, WRONG, ""])
def test_O05_no_password_or_a_wrong_one(guarded: Guarded, password: str | None) -> None:
    """401 to a producer and to a consumer."""
    posted = guarded.post(password)
    assert (posted.status, posted.error["code"]) == (401, "wrong_password")
    assert guarded.read(password).status == 401


def test_O06_one_is_not_valid_for_the_other(guarded: Guarded) -> None:
    """A client that may read may not post."""
    assert guarded.post(READ).status == 401
    assert guarded.read(INGEST).status == 401


def test_O07_any_case_of_the_scheme_and_a_challenge(guarded: Guarded) -> None:
    """oplog accepted `Basic` alone and did not challenge: see PROTOCOL.md."""
    lower = basic(READ)["authorization"].replace("Basic", "basic")
    headers = [("accept", STREAM), ("authorization", lower)]
    connection = Connection(guarded.host.port, "GET", "/ops", headers)
    connection.close()
    assert connection.answer.status == 200
    assert guarded.read(None).headers["www-authenticate"].startswith('Basic realm="tidings"')


def test_O08_status_needs_no_password(guarded: Guarded) -> None:
    """An operator's probe knows none."""
    assert ask(guarded.host.port, "GET", "/status").status == 200


def test_O12_the_password_before_the_content_type(guarded: Guarded) -> None:
    """A wrong one of both is 401."""
    assert guarded.post(WRONG, kind="text/plain").status == 401
    assert guarded.post(INGEST, kind="text/plain").status == 415


def test_O26_the_accepted_type_before_the_password(guarded: Guarded) -> None:
    """Two wrong ones are 406; `text/html` is the page."""
    assert guarded.read(WRONG, accept="image/png").status == 406


def test_a_websocket_says_the_password_when_it_subscribes(guarded: Guarded) -> None:
    """A wrong one is an error of the protocol, a right one is confirmed."""
    assert guarded.subscribe(password=WRONG)["error"]["code"] == "wrong_password"
    assert guarded.subscribe()["error"]["code"] == "wrong_password"
    assert guarded.subscribe(password=READ)["reply"] == "subscribed"


def test_passwords_rotate_while_everything_runs(guarded: Guarded) -> None:
    """By the operator's command: within seconds the new one holds, the old one as long as kept."""
    new = guarded.feed("password", "ingest", "--generate", "--keep-old").strip()
    until(lambda: guarded.post(new).status == 204)
    assert guarded.post(INGEST).status == 204
    guarded.feed("password", "ingest", "--remove-old")
    until(lambda: guarded.post(INGEST).status == 401)
    assert guarded.post(new).status == 204
    guarded.feed("password", "ingest", stdin=INGEST)
    until(lambda: guarded.post(INGEST).status == 204)


def test_no_password_is_in_anything_the_host_writes(guarded: Guarded) -> None:
    """After right and wrong ones on every transport: not in a log, and in the store only hashed."""
    for password in (READ, INGEST, WRONG):
        guarded.post(password)
        guarded.read(password)
        guarded.subscribe(password=password)
        guarded.subscribe(password=f'{password}", "action": "x')
    written = b"".join(path.read_bytes() for path in guarded.folder.rglob("*") if path.is_file())
    written += guarded.host.errors().encode()
    assert b"scrypt$" in written
    for password in (READ, INGEST, WRONG):
        header = basic(password)["authorization"].removeprefix("Basic ")
        assert password.encode() not in written and header.encode() not in written
    assert "scrypt" not in guarded.feed("show") + guarded.feed("show", "--json")
