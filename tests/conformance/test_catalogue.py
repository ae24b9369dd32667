"""The cases themselves: readable, numbered like the protocol, and none of its rules forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conformance.catalogue import cases
from tests.conformance.runner import STEPS
from tests.conformance.target import parse_skips

PROTOCOL = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"
# Rules no request from outside can put to the test, and why.
UNSEEN = {
    "4.8": "the feed's owner sets it; tests/compat/oplog does",
    "4.13": "needs raw connections; tests/unit/server/test_http_protocol.py",
    "4.15": "needs raw connections; tests/unit/server/test_bodies.py",
    "5.7": "needs a feed that was put back to an earlier moment; tests/unit/admin has some",
    "5.8": "needs a page that is gone from the table; tests/unit/core and the simulation have some",
    "6.4": "binds consumers",
    "6.7": "the feed of the cases keeps removed parents; tests/unit/core has one that does not",
    "6.8": "the feed's owner sets it; tests/compat/oplog does",
    "9.3": "needs a broken store; tests/functions has one",
    "12.9": "the operator imports users; tests/compat/changeagent does",
    "12.11": "needs webhooks, for all who post to the feed; tests/compat/changeagent has some",
    "13.10": "the shortest age is a minute, and all cases share the feed; tests/compat/triton",
    "13.11": "needs the tables of the stage; tests/compat/triton has them",
    "14.7": "the cap is weeks away; tests/unit/core and the simulation drive the clock",
    "16.2": "needs a chained feed; tests/compat/chained has some",
    "16.9": "needs a chained feed; tests/compat/chained has some",
    "16.10": "needs a chained feed; tests/compat/chained has some",
    "16.11": "needs a chained feed; tests/compat/chained has some",
    "16.12": "needs a chained feed; tests/compat/chained has some",
    "16.13": "needs a chained feed; tests/compat/chained/test_growing.py moves one",
    **{
        f"17.{at}": "needs keys, which the target has not; tests/functions and tests/unit/core/auth"
        for at in range(1, 12)
    },
    **{
        f"19.{at}": "needs an endpoint that the target may call; tests/unit/server/test_webhooks.py"
        for at in range(1, 9)
    },
    "20.4": "binds consumers",
    "20.5": "needs a chained feed; the simulation compares one",
    "20.6": "needs a chained feed; the simulation loses a row of one",
    "21.10": "needs a chained feed; tests/unit/core/durable_streams has one",
    "22.8": "needs days; tests/unit/core/erasure/test_service.py moves the clock",
    "22.9": "needs a chained feed; the simulation erases on the master of one",
    "23.10": "needs keys of the host; tests/unit/server/test_access.py",
    "23.11": "needs a restart; tests/unit/server/test_access.py",
    "8.8": "binds clients; tests/unit/client",
    "8.11": "a stage has a gateway; tests/unit/server/test_serving.py",
    "8.10": "the server would have to stop, or two hours to pass; tests/unit/{server,twin}",
}
UNSEEN_CODES = {
    "upgrade_required": "a stage has a gateway; tests/unit/server/test_serving.py",
    "invalid_webhook": "a stage calls none; tests/unit/core/hooks",
    "unknown_webhook": "a stage calls none; tests/unit/server/test_webhooks.py",
    "webhook_exists": "a stage calls none; tests/unit/server/test_webhooks.py",
    "repeated_header": "a gateway joins repeated headers; tests/unit/server/test_bounds.py",
    "unknown_key": "the suite's target has no keys; tests/unit/server/test_keys.py",
    "wrong_password": "the suite's target is open; tests/compat/oplog has one that is not",
    "unknown_host": "only servers and agents have names of their own; tests/unit/server",
    "invalid_change": "told in changeagent's form: tests/compat/changeagent",
    "unknown_change": "told in changeagent's form: tests/compat/changeagent",
    "below_floor": "told in changeagent's form: tests/compat/changeagent",
    "invalid_sync": "binds operators; tests/refusals",
    "yielded": "the suite's target keeps its feed; tests/compat/chained/test_growing.py moves one",
    "plan_too_old": "the log is given up after days; tests/functions/test_amend.py",
    "chained": "needs a chained feed; tests/compat/chained has some",
    "log_fell_off": "the log is given up after days; tests/functions has a floor",
    "fell_off": "the cap is weeks away; tests/unit/core drives the clock",
    "wrong_key": "needs a key; tests/functions has all kinds",
    "outside_key": "needs a key; tests/functions has all kinds",
    "key_ended": "needs a key that ends during a connection; tests/e2e revokes one",
    "too_many_requests": "needs a key with a rate; tests/unit/core has one",
    "wrong_user": "told in changeagent's form: tests/compat/changeagent",
}


def test_every_case_is_numbered_like_a_rule_and_says_its_law() -> None:
    """Ids are unique, name a rule of the protocol, and the law is one sentence."""
    found = cases()

    ids = [case.id for case in found]
    assert len(ids) == len(set(ids)), sorted(name for name in ids if ids.count(name) > 1)
    for case in found:
        assert case.rule in _rules(), case.id
        assert case.law.endswith(".") and case.law.count(". ") == 0, case.law


def test_every_step_is_a_verb_the_runner_knows() -> None:
    """A misspelt step fails here, not in a deployed stage."""
    for case in cases():
        assert {verb for verb, _ in case.steps} <= set(STEPS), case.id


def test_every_rule_has_a_case_or_a_reason() -> None:
    """A rule that is added to the protocol is added here too."""
    covered = {case.rule for case in cases()}

    assert _rules() - covered == set(UNSEEN)


def test_every_error_of_the_protocol_has_a_case() -> None:
    """The rows of table 4.6, but for the one that needs a broken store (tests/functions)."""
    expected = "".join(str((case.steps, case.row)) for case in cases())
    codes = re.findall(r"^\| 4\d\d \| `(\w+)`", PROTOCOL.read_text(), re.MULTILINE)

    assert len(codes) > 7
    assert {code for code in codes if code not in expected} == set(UNSEEN_CODES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("7.*,8.6", {"7.*": "left out by --skip-rules", "8.6": "left out by --skip-rules"}),
        ("7.* = no streaming, 8.6=x", {"7.*": "no streaming", "8.6": "x"}),
    ],
)
def test_skips_are_patterns_with_reasons(text: str, expected: dict[str, str]) -> None:
    """`--skip-rules` reads a comma-separated list; a reason is optional."""
    assert parse_skips(text) == expected


def _rules() -> set[str]:
    """Return the numbered rules of sections 3 to 9, 12 to 14, 16, 17, and 19 to 23."""
    numbered = r"^((?:[3-9]|12|13|14|16|17|19|20|21|22|23)\.\d+) "
    return set(re.findall(numbered, PROTOCOL.read_text(), re.MULTILINE))
