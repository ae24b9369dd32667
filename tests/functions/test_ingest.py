"""ingest, propose and index: HTTP API events of payload format 2.0, up to the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from functions.index.handler import handle as index
from functions.ingest.handler import handle
from functions.propose.handler import handle as propose
from tests.functions.cloud import Cloud, event, restart, without_dynamodb
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.changeagent.list import Query
from tidings.core.settings.profiles import OPLOG, Profile
from tidings.core.version import VERSION

NO_CACHE = "no-cache, no-store, must-revalidate"
LINE = (
    '{"event":"insert","timestamp":"2026-11-21T07:11:45Z","parents":["user/ann"],'
    '"type":"video","id":"x32"}'
)


def logged() -> list[list[str]]:
    return [page.lines for page in stage().stores.log.read("main", 0)]


def test_a_post_is_in_the_log_when_it_is_answered(cloud: Cloud) -> None:
    """204 without a body, readable by a browser, never cached; one page of one line."""
    answer = handle(event("http_post"), None)

    assert answer == {
        "statusCode": 204,
        "headers": {
            "server": f"tidings/{VERSION}",
            "cache-control": NO_CACHE,
            "access-control-allow-origin": "*",
            "access-control-expose-headers": "allow, last-event-id, retry-after",
        },
    }
    assert logged() == [[LINE]]


def test_a_binary_body_of_lines_is_one_page_with_an_id_for_each(cloud: Cloud) -> None:
    """API Gateway passes NDJSON in base64; with Prefer the ids are returned."""
    answer = handle(event("http_post_to_feed"), None)

    assert answer["statusCode"] == 200
    assert answer["headers"]["content-type"] == "application/json"
    page = stage().stores.log.read("main", 0)[0]
    ids = [f"{page.id_prefix}{slot:06x}" for slot in range(2)]
    assert json.loads(answer["body"]) == {"ids": ids}
    assert [json.loads(line)["id"] for line in page.lines] == ["1", "2"]


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"body": "%%%", "isBase64Encoded": True}, 400, "invalid_operation"),
        ({"body": None}, 400, "invalid_operation"),
        ({"headers": {}}, 415, "wrong_content_type"),
    ],
)
def test_what_is_wrong_is_refused_and_not_written(
    cloud: Cloud, changes: dict[str, Any], status: int, code: str
) -> None:
    """The status and code of PROTOCOL 4.6, headers as on success, no number taken."""
    answer = handle(event("http_post", **changes), None)

    assert (answer["statusCode"], json.loads(answer["body"])["error"]["code"]) == (status, code)
    assert answer["headers"]["cache-control"] == NO_CACHE
    assert answer["headers"]["access-control-allow-origin"] == "*"
    assert (logged(), stage().stores.log.head("main")) == ([], 0)


@pytest.mark.parametrize(
    ("ask", "error"),
    [(lambda: handle(event("http_post"), None), '"unavailable"'), (lambda: post("1"), "try again")],
    ids=["operation", "change"],
)
def test_a_store_that_does_not_answer_is_503(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], dict[str, Any]], error: str
) -> None:
    """It is unknown whether it was written: the producer is asked to try again."""
    without_dynamodb(monkeypatch)
    answer = ask()

    assert answer["statusCode"] == 503
    assert int(answer["headers"]["retry-after"]) >= 1
    assert error in answer["body"]


def test_origins_are_those_of_the_setting(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a listed origin gets permission to read the answer."""
    monkeypatch.setenv("TIDINGS_CORS_ORIGINS", "https://a.example, https://b.example")
    restart()
    listed = handle(event("http_post", more={"origin": "https://b.example"}), None)
    other = handle(event("http_post", more={"origin": "https://c.example"}), None)

    assert listed["headers"]["access-control-allow-origin"] == "https://b.example"
    assert "access-control-allow-origin" not in other["headers"]
    assert (listed["headers"]["vary"], other["headers"]["vary"]) == ("Origin", "Origin")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"body": '{"event":"insert","type":"a","id":7}'}, 503),
        ({"headers": {}}, 415),
        ({"body": "[" + "1," * 1000 + "1]"}, 413),
        ({"pathParameters": None, "routeKey": "$default"}, 404),
    ],
)
def test_O13_a_feed_that_answers_as_oplog(
    cloud: Cloud, changes: dict[str, Any], status: int
) -> None:
    """No body, and 503 for an operation that is wrong; what names no feed follows `main`."""
    stage().profiles.save("main", Profile(compat=OPLOG))
    sent = event("http_post", **changes)
    if status == 404:
        sent["requestContext"]["http"] |= {"path": "/nope"}

    answer = handle(sent, None)

    assert (answer["statusCode"], answer["body"]) == (status, "")
    assert "content-type" not in answer["headers"]
    assert answer["headers"]["cache-control"] == NO_CACHE


def post(body: str, **changes: Any) -> dict[str, Any]:
    headers = {"content-type": "application/json", **changes.pop("headers", {})}
    return propose(event("http_post", body=body, headers=headers, **changes), None)


def test_a_change_is_in_the_log_when_it_is_answered(cloud: Cloud) -> None:
    """One page of one line that consumers of operations can read; its id is the place."""
    answer = post('{"data":{"a":1},"tags":["t"]}')
    [page] = stage().stores.log.read("main", 0)
    found = json.loads(page.lines[0])

    assert (answer["statusCode"], answer["body"]) == (200, f'{{"_id":{page.number << 10}}}')
    assert (found["event"], found["type"], found["parents"]) == ("insert", "change", ["t"])
    assert (found["data"], found["change"]) == ({"a": 1}, True)
    assert stage().stores.log.log_counter("main").operations == 1


def test_the_index_sums_up_every_feed(cloud: Cloud) -> None:
    """Whole groups of pages; the rest waits for more, and readers read it in the log."""
    for number in range(limits.SUMMARY_PAGES + 3):
        post(json.dumps({"data": number, "tags": ["rare" if number == 5 else "often"]}))
    index({"ring": "main"}, None)
    index({"ring": "main"}, None)

    assert stage().stores.tags.last("main") == limits.SUMMARY_PAGES
    [summary] = stage().stores.tags.read("main", 0, 10)
    assert (summary.first, summary.last) == (1, limits.SUMMARY_PAGES)
    assert summary.may_hold(["rare"]) and not summary.may_hold(["never"])
    found = stage().lister.list("main", Query(tags=frozenset({"rare"})))
    assert [json.loads(each)["data"] for each in found.entries] == [5]
