"""consume: named consumers over HTTP, for workers and operators."""

from __future__ import annotations

from tests.functions.cloud import Cloud
from tests.functions.consuming import ACTION, CONSUMER, ask
from tidings.core import limits

LOG = "/feeds/{feed}/log"
WHY = {"why": "a test"}


ID = "0" * 24
WRONG = [
    ("PUT", CONSUMER, {"form": "now"}, "", 400, "form"),
    ("PUT", CONSUMER, {"from": 7}, "", 400, "from"),
    ("PUT", CONSUMER, {"types": "a"}, "", 400, "types"),
    ("PUT", CONSUMER, [], "", 400, "body"),
    ("POST", ACTION, {}, "lease", 400, "worker"),
    ("POST", ACTION, {"worker": "w", "for": 3}, "lease", 400, "for"),
    ("POST", ACTION, {"fence": "1"}, "ack", 400, "fence"),
    ("POST", ACTION, {"fence": True}, "ack", 400, "fence"),
    ("POST", ACTION, {"fence": 1, "through": "now"}, "ack", 400, "through"),
    ("POST", ACTION, {"fence": 1, "ids": [ID, 7]}, "ack", 400, "ids"),
    ("POST", ACTION, {"fence": 1, "ids": [ID] * 1001}, "ack", 400, "ids"),
    ("POST", ACTION, {"fence": 1, "id": ID}, "fail", 400, "error"),
    ("POST", ACTION, {}, "step", 400, "why"),
    ("POST", ACTION, {**WHY, "by": ""}, "step", 400, "by"),
    ("POST", ACTION, WHY, "mark", 400, "position"),
    ("POST", ACTION, WHY, "reset", 404, "action"),
    ("POST", ACTION, {"worker": "w"}, "lease", 404, "consumer"),
    ("GET", CONSUMER, None, "", 404, "consumer"),
    ("DELETE", CONSUMER, None, "", 400, "why"),
    ("GET", LOG, None, "?form=1", 400, "form"),
    ("GET", LOG, None, "?from=now", 400, "from"),
    ("GET", LOG, None, "?from=" + ID + "&limit=0", 400, "limit"),
    ("GET", LOG, None, "?from=" + ID + "&limit=" + "9" * 5000, 400, "limit"),
]


def test_T39_what_breaks_a_rule_is_named(cloud: Cloud) -> None:
    """Unknown fields too: an ignored setting would be off without notice. Nothing is stored."""
    for method, route, body, more, status, field in WRONG:
        query = dict(each.split("=") for each in more[1:].split("&")) if more[:1] == "?" else {}
        found, answer = ask(method, route, body, query=query, action=more)
        assert (found, answer["error"]["field"]) == (status, field), (method, more, body)
    assert ask("GET", "/feeds/{feed}/consumers")[1] == {"consumers": []}


def test_a_body_is_measured_before_it_is_read(cloud: Cloud) -> None:
    """As for every request: 413, and it is not parsed."""
    status, answer = ask("POST", ACTION, {"why": "x" * limits.REQUEST_BYTES_MAX}, action="step")
    assert (status, answer["error"]["code"], answer["error"]["field"]) == (413, "too_large", "body")


def test_what_is_not_known_is_not_repeated(cloud: Cloud) -> None:
    """It may be a secret in the wrong place: only its name is returned."""
    for found in (
        ask("POST", ACTION, {"worker": "w", "password": "swordfish"}, action="lease"),
        ask("POST", ACTION, ["swordfish"], action="lease"),
        ask("GET", LOG, query={"password": "swordfish"}),
    ):
        assert found[0] == 400
        assert "swordfish" not in str(found[1])
