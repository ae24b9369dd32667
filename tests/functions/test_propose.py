"""propose and index: a change from the event to the log, and its entries in the index."""

from __future__ import annotations

import json
from typing import Any

import pytest

from functions.index.handler import handle as index
from functions.propose.handler import handle
from tests.functions.cloud import Cloud, event, without_dynamodb
from tidings.aws.stage import stage
from tidings.core import limits
from tidings.core.changeagent.list import Query


def post(body: str, **changes: Any) -> dict[str, Any]:
    headers = {"content-type": "application/json", **changes.pop("headers", {})}
    return handle(event("http_post", body=body, headers=headers, **changes), None)


def test_a_change_is_in_the_log_when_it_is_answered(cloud: Cloud) -> None:
    """One page of one line that consumers of operations can read; its id is the place."""
    answer = post('{"data":{"a":1},"tags":["t"]}')
    [page] = stage().stores.log.read("main", 0)
    found = json.loads(page.lines[0])

    assert (answer["statusCode"], answer["body"]) == (200, f'{{"_id":{page.number << 10}}}')
    assert (found["event"], found["type"], found["parents"]) == ("insert", "change", ["t"])
    assert (found["data"], found["change"]) == ({"a": 1}, True)
    assert stage().stores.log.log_counter("main").operations == 1


def test_a_store_that_does_not_answer_is_503(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is unknown whether it was written: the client is asked to try again."""
    without_dynamodb(monkeypatch)
    answer = post("1")

    assert answer["statusCode"] == 503
    assert int(answer["headers"]["retry-after"]) >= 1
    assert "try again" in json.loads(answer["body"])["error"]


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
