"""administer: what load balancers and operators ask for, with and without users."""

from __future__ import annotations

import json
from typing import Any

import bcrypt
import pytest

from functions.administer.handler import handle
from functions.ingest.handler import handle as ingest
from functions.propose.handler import handle as propose
from tests.functions.cloud import Cloud, basic, event, restart, without_dynamodb
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.changeagent.documents import USERS, OperatorDocument

FORM = "application/x-www-form-urlencoded"


def ask(
    method: str, path: str, *, kind: str = "", body: str = "", password: str = "", **parameters: str
) -> dict[str, Any]:
    """Return the answer to one request by the route that is *path*."""
    headers = {"host": "feed.example", "x-forwarded-proto": "https", "content-type": kind}
    headers |= basic(password, "ann") if password else {}
    sent = event(
        "http_get_status",
        routeKey=f"{method} {path}",
        headers=headers,
        body=body,
        pathParameters=parameters,
    )
    sent["requestContext"]["http"] |= {"method": method, "path": path.format(**parameters)}
    return handle(sent, None)


def mark(up: str, password: str = "") -> int:
    status: int = ask("PUT", "/health", kind=FORM, body=f"up={up}", password=password)["statusCode"]
    return status


def configure(body: str) -> dict[str, Any]:
    return ask("PUT", "/config", kind="application/yaml", body=body)


def import_user(password: str) -> None:
    stored = bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
    standing = stage().stores.documents.operator_document("main", USERS)
    assert stage().stores.documents.write(
        "main", USERS, OperatorDocument(f"ann:{stored}\n", standing.version)
    )
    restart()


def test_A32_every_process_hears_of_a_mark(cloud: Cloud) -> None:
    """It is kept for the deployment; true in any case is up, anything else is down."""
    assert (ask("GET", "/health")["statusCode"], ask("GET", "/health")["body"]) == (200, "ok")
    for text, status in (("false", 503), ("TRUE", 200), ("no", 503), ("true", 200)):
        assert mark(text) == 200
        restart()
        assert ask("GET", "/health")["statusCode"] == status


def test_A34_health_is_told_to_all_and_marked_by_users(cloud: Cloud) -> None:
    """A load balancer has no password; taking the feed out of service requires one."""
    import_user("secret")

    assert mark("false") == mark("false", "wrong") == 401
    assert ask("GET", "/health")["statusCode"] == 200
    assert mark("false", "secret") == 200
    assert ask("GET", "/health")["statusCode"] == 503


def test_A35_everything_else_asks_for_a_user(cloud: Cloud) -> None:
    """Without a body, and with changeagent's realm."""
    import_user("secret")
    sent = event("http_post", headers={"content-type": "application/json"}, body="1")
    for answer in (
        ask("GET", "/config"),
        ask("PUT", "/config"),
        ask("GET", "/cluster"),
        ask("POST", "/cluster/members"),
        ask("GET", "/diagnostics"),
        ask("GET", "/diagnostics/{part}", part="stack"),
        ask("GET", "/diagnostics/raft/{part}", part="state"),
        propose(sent, None),
    ):
        assert (answer["statusCode"], answer["body"]) == (401, "")
        assert answer["headers"]["www-authenticate"] == 'Basic realm="changeagent"'
    assert ask("GET", "/config", password="secret")["statusCode"] == 200


BAD_YAML = {
    "aliases": "a: &a [x,x]\nb: &b [*a,*a]\nwebHooks: [*b,*b]",
    "an anchor": "minPurgeRecords: &a 1",
    "a tag": 'minPurgeRecords: !!int ""',
    "a date by its tag": 'minPurgeDuration: !!timestamp "x"',
    "an object": "webHooks: !!python/object/apply:os.system [id]",
    "many digits": "minPurgeRecords: " + "9" * 5000,
    "no digits": "minPurgeRecords: 0x_",
    "nested": "webHooks: " + "[" * 1000 + "]" * 1000,
    "a date": "minPurgeRecords: 2026-13-45",
    "a merge": "<<: {minPurgeRecords: 1}",
    "two documents": "{}\n---\n{}",
    "broken": "a: [",
}


def test_a_configuration_is_no_more_than_json(cloud: Cloud) -> None:
    """YAML beyond JSON is an error of the sender, and changes nothing."""
    before = ask("GET", "/config")["body"]
    for what, text in BAD_YAML.items():
        answer = configure(text)
        assert answer["statusCode"] == 400, what
        assert len(answer["body"]) < 500
    assert ask("GET", "/config")["body"] == before


def test_a_configuration_is_measured_before_it_is_read(cloud: Cloud) -> None:
    """Then it is 413; one as long as it may be is read."""
    assert configure("#" * limits.CONFIGURATION_BYTES_MAX)["statusCode"] == 200
    answer = configure("#" * (limits.CONFIGURATION_BYTES_MAX + 1))
    assert (answer["statusCode"], "65536 bytes" in answer["body"]) == (413, True)


def test_health_is_up_while_nobody_can_tell(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away must not take the whole deployment out of service."""
    without_dynamodb(monkeypatch)
    answer = ask("GET", "/health")

    assert (answer["statusCode"], answer["body"]) == (200, "ok")
    assert answer["headers"]["content-type"] == "text/plain"
    assert answer["headers"]["cache-control"] == "no-cache, no-store, must-revalidate"
    assert ask("GET", "/config")["statusCode"] == 503


def test_A40_links_follow_what_proxies_say(cloud: Cloud) -> None:
    """The default route serves the root of APIs without streams; an invalid name is not used."""
    for headers, base in (
        ({"host": "a.example"}, "http://a.example"),
        ({"host": "a.example", "x-forwarded-proto": "https"}, "https://a.example"),
        ({"host": "a", "forwarded": "by=1;for=2;host=b.example;proto=https"}, "http://b.example"),
        ({"host": "a", "x-forwarded-host": "c.example:8"}, "http://c.example:8"),
        ({"host": 'a"><script>'}, "http://localhost"),
    ):
        accepts = {**headers, "accept": "application/json"}
        sent = event("http_post", routeKey="$default", headers=accepts)
        sent["requestContext"]["http"] |= {"method": "GET", "path": "/"}
        assert json.loads(ingest(sent, None)["body"])["changes"] == f"{base}/changes"


def test_a_prefix_is_taken_off(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A custom domain's mapping leaves it in the path; operations are posted below it too."""
    monkeypatch.setenv("TIDINGS_URL_PREFIX", "foo")
    restart()
    sent = event("http_post")
    sent["requestContext"]["http"] |= {"path": "/foo/ops"}

    assert ingest(sent, None)["statusCode"] == 204
