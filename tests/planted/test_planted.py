"""Secrets are planted in a twin, used rightly and wrongly, and looked for everywhere.

These are its files (logs, the store's own files, the archive), every answer, the arguments and
environment of its processes, the output of commands, and the deployed templates.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.planted.plants import (
    HOOK,
    INGEST,
    READ,
    UPSTREAM,
    WRONG,
    Found,
    found_below,
    found_in,
    spellings,
)
from tests.twin import Twin
from tidings.core.auth.keys import PresentedKey, parse

PATIENCE_S = 180.0
OPERATION = {"event": "update", "type": "video", "id": "x", "data": "\0 is refused in names alone"}
BROKEN = {"event": "update", "type": "a\0", "id": "x"}


@dataclass(frozen=True)
class Place:
    """A twin with everything planted; *key* is the secret half of a key, *told* all its answers."""

    twin: Twin
    data: Path
    key: str
    told: list[tuple[str, bytes]]

    @property
    def secrets(self) -> list[str]:
        """Return the secrets that are never sent, and stored by their hashes only."""
        return [READ, INGEST, WRONG, self.key]


def _files(folder: Path) -> Iterator[str]:
    for role, password in (("read", READ), ("ingest", INGEST)):
        file = folder / role
        file.write_text(f"{password}\n")
        yield from (f"--{role}-password-file", str(file))


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    return subprocess.run(
        [sys.executable, "-m", "tidings.client.cli.main", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _key(twin: Twin) -> PresentedKey:
    made = command("keys", "create", "--role", "read", "--endpoint-url", twin.dynamodb_url)
    found = parse(made.stdout.strip())
    assert found, made.stderr
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    passwords, data = tmp_path_factory.mktemp("given"), tmp_path_factory.mktemp("data")
    chained = ("--feeds", "main,copy", "--chain", "copy=http://127.0.0.1:9/feeds/main")
    with Twin(*_files(passwords), *chained, data=data) as twin:
        key = _key(twin)
        made = Place(twin, data, key.secret, [])
        _use(made, key.encode())
        yield made


def _basic(password: str) -> dict[str, str]:
    user = base64.b64encode(f"ann:{password}".encode()).decode()
    return {"authorization": f"Basic {user}"}


def _use(place: Place, key: str) -> None:
    """Use every secret rightly and wrongly, through every interface."""
    shown = [_basic(each) for each in (READ, INGEST, WRONG, key)]
    shown += [{"authorization": f"Bearer {each}"} for each in (key, key + "x", "eyJh.eyJh.AA")]
    with httpx.Client(base_url=place.twin.url, timeout=PATIENCE_S) as client:
        for headers in shown:
            _ask(place, client, headers)
        _plant(place, client)
    for password in (READ, key, WRONG, key + "x"):
        with connect(place.twin.ws_url, open_timeout=PATIENCE_S) as socket:
            for said in (
                {"action": "subscribe", "password": password},
                {"action": "subscribe", "password": [password]},
            ):
                socket.send(json.dumps(said))
                place.told.append(("websocket", str(socket.recv(PATIENCE_S)).encode()))


def _ask(place: Place, client: httpx.Client, headers: dict[str, str]) -> None:
    for method, path, body in (
        ("POST", "/", OPERATION),
        ("POST", "/", BROKEN),
        ("POST", "/feeds/none/ops", OPERATION),
        ("POST", "/changes", {"data": 1}),
        ("GET", "/feeds/main/objects", None),
        ("GET", "/feeds/main/consumers", None),
        ("GET", "/feeds/main/pages?after=x", None),
        ("GET", "/config", None),
        ("GET", "/relays", None),
        ("GET", "/status", None),
        ("GET", "/diagnostics/stack", None),
        ("GET", "/diagnostics", None),
        ("GET", "/no/such/path", None),
    ):
        answer = client.request(method, path, headers=headers, json=body)
        head = json.dumps(dict(answer.headers)).encode()
        place.told.append((f"{method} {path}", head + answer.content))


def _plant(place: Place, client: httpx.Client) -> None:
    """Set what only operators give: a webhook's header, an upstream's password."""
    hooks: dict[str, Any] = {"webHooks": [{"uri": "https://h.invalid/", "headers": {"x": HOOK}}]}
    yaml = {**_basic(INGEST), "content-type": "application/yaml"}
    answer = client.put("/config", headers=yaml, content=json.dumps(hooks))
    assert answer.status_code == 200, answer.text
    ends = time.monotonic() + PATIENCE_S
    refused = client.post("/changes", headers=_basic(INGEST), json={"data": 1})
    while refused.status_code == 200 and time.monotonic() < ends:  # until it is known everywhere
        refused = client.post("/changes", headers=_basic(INGEST), json={"data": 1})
    assert refused.status_code == 502, refused.text
    place.told.append(("POST /changes", refused.content))
    path = "/feeds/copy/relay/password"
    answer = client.put(path, headers=_basic(INGEST), json={"password": UPSTREAM})
    place.told.append((f"PUT {path}", answer.content))
    assert answer.status_code == 200, answer.text


def test_a_plant_would_be_found(tmp_path: Path) -> None:
    """The search itself: each secret in each spelling, in a file and in the name of one."""
    for at, spelling in enumerate(sorted(spellings(READ))):
        (tmp_path / str(at)).write_bytes(b"before " + spelling + b" behind")
    (tmp_path / "named by key abc").mkdir()

    assert len(found_below(tmp_path, [READ, "key abc"])) == len(spellings(READ)) + 1
    assert found_below(tmp_path, [INGEST]) == []


@pytest.mark.java
def test_no_file_of_the_twin_holds_one(place: Place) -> None:
    """Logs of the functions, the store's own files, removed pages, the archive."""
    assert (place.data / "functions.log").stat().st_size > 0
    assert found_below(place.data, place.secrets) == []


@pytest.mark.java
def test_what_has_to_be_sent_on_is_in_the_store_alone(place: Place) -> None:
    """A webhook's header and an upstream's password are not hashed: they are in the one table."""
    found = {each.where.partition("/")[0] for each in found_below(place.data, [HOOK, UPSTREAM])}

    assert found == {"dynamodb"}


@pytest.mark.java
def test_no_answer_repeats_one(place: Place) -> None:
    """Bodies and headers, of successes and of errors, also on WebSockets."""
    secrets = [*place.secrets, HOOK, UPSTREAM]
    found = [each for where, data in place.told for each in found_in(where, data, secrets)]

    assert len(place.told) > 90
    assert found == []


@pytest.mark.java
def test_no_process_was_started_with_one(place: Place) -> None:
    """Neither its arguments nor its environment, which `ps` may show to any user."""
    secrets = [*place.secrets, HOOK, UPSTREAM]
    found: list[Found] = []
    for name in ("cmdline", "environ"):
        for process in _family(place.twin.pid):
            found += found_in(f"{name} of {process}", _of_process(process, name), secrets)

    assert found == []


@pytest.mark.java
def test_no_command_prints_one(place: Place) -> None:
    """Also if it fails; a key is printed when it is created and never again."""
    at = ("--endpoint-url", place.twin.dynamodb_url)
    for arguments in (
        ("feed", "show", *at),
        ("keys", "list", *at),
        ("keys", "list", "--json", *at),
        ("keys", "revoke", place.key, *at),
        ("status", "--url", place.twin.url),
        ("relays", "list", "--url", place.twin.url),
    ):
        done = command(*arguments)
        printed = (done.stdout + done.stderr).encode()
        if place.key not in arguments:
            assert printed, arguments
        assert list(found_in(" ".join(arguments), printed, [*place.secrets, HOOK, UPSTREAM])) == []


def _family(pid: int) -> list[int]:
    """*pid* and all below it."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in below for each in _family(int(child)))]


def _of_process(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended in the meantime
        return b""
