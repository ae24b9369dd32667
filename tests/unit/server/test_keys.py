"""Rules 17.11 and 17.12: keys over HTTP; and tokens whose keys have to be fetched."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tests.hosts import make_key
from tidings.client import Operator
from tidings.client.cli.main import main
from tidings.core import limits
from tidings.core.auth.oidc_claims import Issuer
from tidings.core.errors import Unavailable
from tidings.http.outbound.credentials import ASK_AGAIN_S, Tokens
from tidings.server.issuer_keys import IssuerKeys
from tidings.server.running import Server

WITHIN_S = 120.0  # the promise is 5 s; a busy machine needs more


@pytest.fixture(scope="module")
def operator(server: Server) -> Iterator[httpx.Client]:
    shown = {"authorization": f"Bearer {make_key(server, '--role', 'admin')}"}
    with httpx.Client(base_url=server.url, headers=shown) as client:
        yield client


def test_P17_11_keys_are_told_without_their_secrets(server: Server, operator: httpx.Client) -> None:
    """The list has the ids and the rights of the keys."""
    made = make_key(server, "--role", "read", "--parent", "user/42", "--label", "the shop")
    _, id_, secret = made.split("_", 2)

    answer = operator.get("feeds/main/keys")
    (key,) = [each for each in answer.json()["keys"] if each["id"] == id_]
    assert key["state"] == "holds"
    assert (key["roles"], key["parents"], key["label"]) == (["read"], ["user/42"], "the shop")
    assert secret not in answer.text


def test_P17_11_a_revoked_key_opens_nothing(server: Server, operator: httpx.Client) -> None:
    """It is still listed; a second revocation changes nothing."""
    made = make_key(server, "--role", "read")
    path = f"feeds/main/keys/{made.split('_')[1]}/revoke"
    status, read = f"{server.url}feeds/main/consumers", {"authorization": f"Bearer {made}"}
    assert httpx.get(status, headers=read).status_code == 200

    first, second = operator.post(path).json(), operator.post(path).json()
    assert first["state"] == "revoked"
    assert second["revoked_at"] == first["revoked_at"]
    deadline = time.monotonic() + WITHIN_S
    while (answer := httpx.get(status, headers=read)).is_success:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert answer.json()["error"]["code"] == "wrong_key"


@pytest.mark.parametrize(
    ("id_", "status", "code"),
    [("3k2m9c0q8xw1", 404, "unknown_key"), ("no-id", 400, "invalid_setting")],
)
def test_P17_11_what_is_no_key_is_not_revoked(
    operator: httpx.Client, id_: str, status: int, code: str
) -> None:
    """The error has the field, the value and the rule."""
    answer = operator.post(f"feeds/main/keys/{id_}/revoke")
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["field"] == "id"


def client_of(server: Server, *options: str) -> httpx.Client:
    """Return a client with a new key, which the operator creates with *options*."""
    shown = {"authorization": f"Bearer {make_key(server, *options)}"}
    return httpx.Client(base_url=server.url, headers=shown)


def of_roles(*roles: str) -> list[str]:
    return [word for role in roles for word in ("--role", role)]


ALL_ROLES = of_roles("admin", "read", "ingest")
KEYS = "feeds/main/keys"


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["field"]


def test_P17_12_a_created_key_opens_what_it_says(server: Server) -> None:
    """The key is in the answer only, and its creator is named."""
    with client_of(server, *ALL_ROLES) as operator:
        wanted = {"roles": ["read"], "parents": ["user/42"], "expires": "24h", "label": "the shop"}
        answer = operator.post(KEYS, json=wanted)
        listed = operator.get(KEYS)
        creator = operator.headers["authorization"].split("_")[1]
    made = answer.json()
    key = made.pop("key")
    assert answer.status_code == 201 and answer.headers["cache-control"].startswith("no-cache, no")
    assert made in listed.json()["keys"] and key.split("_", 2)[2] not in listed.text
    assert (made["roles"], made["parents"], made["label"]) == (["read"], ["user/42"], "the shop")
    assert made["made_by"] == f"key {creator}" and made["id"] == key.split("_")[1]
    assert made["expires_at"] > made["made_at"] and made["streams"] == limits.KEY_STREAMS
    shown = {"authorization": f"Bearer {key}"}
    assert httpx.get(f"{server.url}feeds/main/objects", headers=shown).status_code == 200
    assert httpx.get(f"{server.url}feeds/main/log", headers=shown).status_code == 403


@pytest.mark.parametrize(
    ("own", "wanted", "field"),
    [
        (of_roles("admin"), {"roles": ["read"]}, "roles"),
        (of_roles("admin", "read"), {"roles": ["read", "ingest"]}, "roles"),
        ([*ALL_ROLES, "--expires", "1h"], {"roles": ["read"], "expires": "61m"}, "expires"),
        ([*ALL_ROLES, "--rate", "100"], {"roles": ["read"], "rate": 101}, "rate"),
        ([*ALL_ROLES, "--streams", "3"], {"roles": ["read"], "streams": 4}, "streams"),
    ],
)
def test_P17_12_a_key_has_no_more_rights_than_its_creator(
    server: Server, own: list[str], wanted: dict[str, object], field: str
) -> None:
    """The refusal names the field, and creates nothing."""
    with client_of(server, *own) as creator:
        before = creator.get(KEYS).json()
        assert error_of(creator.post(KEYS, json=wanted)) == (403, "outside_key", field)
        assert creator.get(KEYS).json() == before


def test_P17_12_what_a_request_leaves_out_is_limited_like_its_creator(server: Server) -> None:
    """So a key that ends creates none that does not, and `admin` includes two roles."""
    options = (*of_roles("admin"), "--expires", "1h", "--rate", "100", "--streams", "3")
    with client_of(server, *options) as creator:
        made = creator.post(KEYS, json={"roles": ["consume", "erase", "admin"]}).json()
        (own,) = [
            each
            for each in creator.get(KEYS).json()["keys"]
            if each["id"] == creator.headers["authorization"].split("_")[1]
        ]
    fields = ("expires_at", "rate", "streams")
    assert [made[field] for field in fields] == [own[field] for field in fields]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "roles"),
        ({"roles": ["admin"], "types": ["video"]}, "roles"),
        ({"roles": ["read"], "parents": [""]}, "parents"),
        ({"roles": ["read"], "expires": "-1h"}, "expires"),
        ({"roles": ["read"], "rate": -1}, "rate"),
        ({"roles": ["read"], "streams": limits.KEY_STREAMS_MAX + 1}, "streams"),
        ({"roles": ["read"], "label": "a\nb"}, "label"),
        ({"roles": ["read"], "feeds": ["team-"]}, "feeds"),
    ],
)
def test_P17_12_a_field_that_breaks_its_rule(
    server: Server, body: dict[str, object], field: str
) -> None:
    """Wrong types are in tests/refusals."""
    with client_of(server, *ALL_ROLES, "--streams", str(limits.KEY_STREAMS_MAX)) as operator:
        assert error_of(operator.post(KEYS, json=body)) == (400, "invalid_setting", field)


def test_P17_12_nobody_creates_the_first_key_over_http() -> None:
    """It would close the feed for every client; the error names the command."""
    with Server() as server:
        for path in (KEYS, f"{KEYS}?host=true"):
            answer = httpx.post(f"{server.url}{path}", json={"roles": ["read"]}, auth=("", "any"))
            assert error_of(answer) == (401, "no_password_set", "feed")
            assert "tidings keys create" in answer.json()["error"]["message"]
        assert httpx.get(f"{server.url}{KEYS}").json() == {"keys": []}


def test_P17_12_no_log_has_the_secret(tmp_path: Path) -> None:
    """Neither has the database, a trace or an error of the server."""
    with Server("--verbose", data=tmp_path) as server:
        with client_of(server, *ALL_ROLES) as operator:
            shown = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
            key = operator.post(KEYS, json={"roles": ["read"]}, headers=shown).json()["key"]
        server.stop()
        secret, id_ = key.split("_", 2)[2].encode(), key.split("_")[1].encode()
        written = [each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()]
        written.append(server.errors().encode())
    assert any(id_ in each for each in written) and not any(secret in each for each in written)


def test_P17_12_the_client_creates_and_revokes_keys(server: Server) -> None:
    """The keys are those of the feed, and of the host with prefixes."""
    own = make_key(server, "--host", *ALL_ROLES)
    with Operator(server.url, password=own) as operator:
        made = operator.create_key(["read"], types=["video"], expires="1h", rate=5, streams=2)
        assert (made["types"], made["rate"], made["streams"]) == (["video"], 5, 2)
        assert operator.revoke_key(made["id"])["state"] == "revoked"
        of_host = operator.create_key(["read"], feeds=["main"], host=True)
        assert of_host["id"] in {each["id"] for each in operator.list_keys(host=True)}
        assert operator.revoke_key(of_host["id"], host=True)["state"] == "revoked"
        assert made["id"] in {each["id"] for each in operator.list_keys()}


def test_P17_12_the_command_creates_keys_at_an_address(server: Server) -> None:
    """It has the same output as with the data of the server; a refusal is one sentence."""

    def run(*words: str) -> Result:
        place = ("--url", server.url, "--password", own)
        return CliRunner().invoke(main, ["keys", *words, *place])

    own = make_key(server, "--host", *ALL_ROLES, "--feeds", "main")
    made = json.loads(run("create", "--role", "read", "--expires", "1h", "--json").stdout)
    assert made["made_by"] == f"key {own.split('_')[1]}"
    of_server = CliRunner().invoke(main, ["keys", "list", *server.locator]).stdout
    assert run("list").stdout == of_server and made["id"] in of_server
    assert "revoked" in run("revoke", made["id"]).stdout
    of_host = run("create", "--host", "--role", "read", "--feeds", "main-").stdout.strip()
    assert of_host.split("_")[1] in run("list", "--host").stdout
    assert "feeds      main-*" in run("revoke", "--host", of_host.split("_")[1]).stdout
    refused = run("create", "--role", "read", "--streams", "900")
    assert refused.exit_code == 1 and "streams" in refused.output
    for words in (("--data", str(server.data)), ("--by", "ann")):
        assert run("create", "--role", "read", *words).exit_code == 2


def test_P17_12_a_password_creates_keys_with_its_own_roles(tmp_path: Path) -> None:
    """The ingest password does not read, so it creates no key that reads."""
    passwords = ("--ingest-password-file", "--read-password-file")
    options = []
    for name in passwords:
        file = tmp_path / name
        file.write_text(f"the password of {name}")
        options += [name, str(file)]
    with Server(*options) as server:
        shown = ("", f"the password of {passwords[0]}")
        with httpx.Client(base_url=server.url, auth=shown) as operator:
            made = operator.post(KEYS, json={"roles": ["ingest", "admin", "erase"]})
            assert made.status_code == 201 and made.json()["made_by"] == "password"
            refused = operator.post(KEYS, json={"roles": ["read"]})
            assert error_of(refused) == (403, "outside_key", "roles")


def test_P17_12_a_key_of_the_host_creates_keys_for_its_prefixes(server: Server) -> None:
    """It lists and revokes only these; a key of a feed reaches none of them."""
    wide = make_key(server, "--host", *ALL_ROLES)
    path, body = f"{KEYS}?host=true", {"roles": ["read"], "feeds": ["main-a"]}
    with client_of(server, "--host", *ALL_ROLES, "--feeds", "main") as creator:
        made = creator.post(path, json=body).json()
        assert made["feeds"] == ["main-a"]
        for feeds, status, code in (
            (["ma"], 403, "outside_key"),
            (["main-a", "other"], 403, "outside_key"),
        ):
            answer = creator.post(path, json={**body, "feeds": feeds})
            assert error_of(answer) == (status, code, "feeds")
        whole = creator.post(path, json={"roles": ["read"]})
        assert error_of(whole) == (400, "invalid_setting", "feeds")
        listed = {each["id"] for each in creator.get(path).json()["keys"]}
        assert made["id"] in listed and wide.split("_")[1] not in listed
        foreign = creator.post(f"{KEYS}/{wide.split('_')[1]}/revoke?host=true")
        assert error_of(foreign) == (404, "unknown_key", "id")
        ended = creator.post(f"{KEYS}/{made['id']}/revoke?host=true").json()
        assert ended["state"] == "revoked"
    with client_of(server, *ALL_ROLES) as of_feed:
        for answer in (of_feed.get(path), of_feed.post(path, json=body)):
            assert answer.status_code == 401
        assert error_of(of_feed.get(f"{KEYS}?hosts=true")) == (400, "invalid_setting", "hosts")


@pytest.mark.parametrize("role", ["read", "ingest", "consume"])
def test_P17_11_all_take_admin(server: Server, role: str) -> None:
    """With another key they are neither listed, revoked nor created."""
    shown = {"authorization": f"Bearer {make_key(server, '--role', role)}"}
    listed = httpx.get(f"{server.url}feeds/main/keys", headers=shown)
    ended = httpx.post(f"{server.url}feeds/main/keys/3k2m9c0q8xw1/revoke", headers=shown)
    made = httpx.post(f"{server.url}{KEYS}", headers=shown, json={"roles": [role]})
    assert [error_of(each)[:2] for each in (listed, ended, made)] == [(403, "outside_key")] * 3


def test_P17_7_a_stream_that_is_read_slowly_ends_with_its_key(
    server: Server, operator: httpx.Client
) -> None:
    """Its connection is reset, although data waits for its client."""
    secret = make_key(server, "--role", "read")
    page = [
        {"event": "insert", "type": "v", "id": str(each), "data": "x" * 4000} for each in range(100)
    ]
    writer = {"authorization": f"Bearer {make_key(server, '--role', 'ingest')}"}
    for _ in range(20):
        httpx.post(f"{server.url}ops", json=page, headers=writer).raise_for_status()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(WITHIN_S)
        client.connect(("127.0.0.1", server.port))
        head = "GET /ops?lastEventId=0 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n"
        client.sendall(f"{head}Authorization: Bearer {secret}\r\n\r\n".encode())
        assert client.recv(64).startswith(b"HTTP/1.1 200 ")
        time.sleep(1)  # the server fills every buffer
        operator.post(f"feeds/main/keys/{secret.split('_')[1]}/revoke").raise_for_status()
        until_s = time.monotonic() + WITHIN_S
        with pytest.raises(ConnectionError):
            while time.monotonic() < until_s:
                client.recv(500)
                time.sleep(0.2)


def test_P10_10_a_key_is_told_its_rights(server: Server) -> None:
    """With the part of the feed; a missing, wrong or ended credential grants nothing."""
    key = make_key(server, "--role", "read", "--role", "ingest", "--parent", "user/42")
    url = f"{server.url}feeds/main/access"
    answer = httpx.get(url, headers={"authorization": f"Bearer {key}"}).json()
    assert answer["principal"] == key.split("_")[1]
    assert answer["roles"] == [
        {"role": role, "types": None, "parents": ["user/42"]} for role in ("read", "ingest")
    ]
    nothing: dict[str, object] = {"principal": None, "roles": []}
    for shown in ({}, {"authorization": f"Bearer {key[:-1]}"}, {"authorization": "Bearer x"}):
        refused = httpx.get(url, headers=shown)
        assert (refused.status_code, refused.json()) == (200, nothing)
        assert "www-authenticate" not in refused.headers


def test_P10_10_a_key_of_the_host_is_told_its_rights(server: Server) -> None:
    """On the feeds that it permits; `admin` includes two roles."""
    key = make_key(server, "--host", "--role", "admin", "--feeds", "ma")
    headers = {"authorization": f"Bearer {key}"}
    roles = httpx.get(f"{server.url}feeds/main/access", headers=headers).json()["roles"]
    assert [each["role"] for each in roles] == ["consume", "erase", "admin"]


PATIENCE_S = 180.0
REQUESTS = 40  # more than a server has threads for requests
OPERATION = {"event": "insert", "type": "v", "id": "1"}


def token(kid: str) -> str:
    """Return a token without a subject or a signature."""
    parts = ({"alg": "RS256", "kid": kid}, {"iss": "x"})
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts]
    return b".".join([*encoded, b"AAAA"]).decode()


class Silent:
    """An issuer that accepts connections and says nothing."""

    def __init__(self) -> None:
        self.asked = 0

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._hang, "127.0.0.1", 0)

    async def _hang(self, *_: object) -> None:
        self.asked += 1
        await asyncio.sleep(10 * PATIENCE_S)


async def _forged(folder: Path) -> tuple[list[int], list[int], int]:
    """Return the answers to forged tokens, those to other requests at the same time, and the number
    of fetches.
    """
    issuer = Silent()
    listening = await issuer.serve()
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    setting = json.dumps({"issuer": url, "audience": "a", "claim": "c"})
    with Server("--setting", f"TIDINGS_OIDC={setting}", data=folder) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_S) as client:

            def ask(number: int) -> Any:
                headers = {"authorization": f"Bearer {token(str(number))}"}
                if number % 2:
                    return client.post("ops", json=OPERATION, headers=headers)
                return client.get("changes", headers=headers)

            forged = [asyncio.ensure_future(ask(number)) for number in range(REQUESTS)]
            while not issuer.asked:
                await asyncio.sleep(0.01)
            others = [(await client.get(path)).status_code for path in ("health", "status")]
            assert not any(each.done() for each in forged)  # they waited for none of these
            statuses = [(await each).status_code for each in forged]
        assert "LoopWouldBlock" not in server.errors()
    listening.close()
    return statuses, others, issuer.asked


def test_an_issuer_that_is_silent_holds_up_no_one_else(tmp_path: Path) -> None:
    """More tokens than there are threads wait for one fetch, and get 503."""
    statuses, others, asked = asyncio.run(_forged(tmp_path))
    assert statuses == [503] * REQUESTS
    assert others == [200, 200]
    assert asked == 1


def test_requests_await_one_fetch() -> None:
    """They name unknown keys; the issuer is asked again for one only after some time."""
    fetches, on, now_s = [], threading.Event(), [0.0]

    def ask(url: str) -> dict[str, Any]:
        fetches.append(url)
        assert on.wait(PATIENCE_S)
        raise Unavailable("away")

    tokens = Tokens(Issuer("https://id.example", "a", "c"), ask, lambda: now_s[0])
    keys = IssuerKeys(tokens)

    async def play() -> None:
        waiting = [
            asyncio.ensure_future(keys.prepare(f"Bearer {token(str(each))}")) for each in range(9)
        ]
        said = json.dumps({"action": "subscribe", "password": token("x")})
        waiting.append(asyncio.ensure_future(keys.prepare_message(said)))
        while not fetches:
            await asyncio.sleep(0.001)
        assert not any(each.done() for each in waiting)
        for text in ("", "Basic e30=", "Bearer tdk_x", "Bearer eyJ.x.y"):
            await keys.prepare(text)
        await keys.prepare_message("eyJ")
        on.set()
        await asyncio.gather(*waiting)
        await keys.prepare(f"Bearer {token('again')}")
        assert len(fetches) == 1
        now_s[0] += ASK_AGAIN_S
        await keys.prepare(f"Bearer {token('again')}")
        assert len(fetches) == 2

    asyncio.run(play())


def test_a_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later request fetches the keys."""
    fetches: list[str] = []

    def ask(url: str) -> dict[str, Any]:
        fetches.append(url)
        raise Unavailable("away")

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def play() -> None:
        keys = IssuerKeys(Tokens(Issuer("https://id.example", "a", "c"), ask))
        with monkeypatch.context() as failing:
            failing.setattr(threading.Thread, "start", start)
            await keys.prepare(f"Bearer {token('1')}")
        await keys.prepare(f"Bearer {token('1')}")
        assert len(fetches) == 1

    asyncio.run(play())
