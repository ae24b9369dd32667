"""Stages with chained feeds, and the election of their leaders."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from infra import settings
from tests.infra.templates import Template, synthesised, text
from tidings.aws.config.deployment import COORDINATION_ACTIONS
from tidings.aws.config.settings import CoordinatorUrl, parse_coordinator
from tidings.aws.config.stages import SOURCES_OUTPUT
from tidings.http.settings import WrongSetting

pytestmark = pytest.mark.node

URL = "https://feed.example/feeds/main"
ELECTED: dict[str, object] = {"url": URL, "role": "elected", "address": URL}
ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/seats"
(DEV,) = settings.choose_stages("dev")


def made(**changes: Any) -> Template:
    return synthesised(replace(DEV, **changes))


@pytest.fixture(scope="module")
def leading() -> Template:
    """A stage that has the table, for another account too, and one address."""
    return made(
        sources={"main": ELECTED},
        seats=True,
        seat_accounts=("111122223333",),
        one_address=settings.OneAddress(),
    )


def environment_of(template: Template, function: str) -> dict[str, Any]:
    found: dict[str, Any] = template.function(function)[1]["Environment"]["Variables"]
    return found


def test_D1_every_function_is_told_of_the_sources(leading: Template) -> None:
    """The functions that post refuse; the relay copies."""
    for function in ("ingest", "stream", "follow-relay"):
        assert json.loads(text(environment_of(leading, function)["TIDINGS_SOURCES"])) == {
            "main": ELECTED
        }


def test_commands_are_told_which_feeds_are_copies(leading: Template) -> None:
    """And of what, so that a sync of one is refused before it is planned."""
    assert json.loads(leading.body["Outputs"][SOURCES_OUTPUT]["Value"]) == {"main": {"url": URL}}


def test_D39_leaders_are_elected_in_one_table(leading: Template) -> None:
    """Only the relay and the status may use it, and other accounts by its policy."""
    tables = leading.body["Resources"]
    (name,) = (each for each in tables if each.startswith("SeatsTable") and "Type" in tables[each])
    table = tables[name]["Properties"]
    assert (
        text(environment_of(leading, "follow-relay")["TIDINGS_COORDINATOR"])
        == f"dynamodb://<{name}>"
    )
    assert "SSESpecification" not in table or not table["SSESpecification"]["SSEEnabled"]
    (statement,) = table["ResourcePolicy"]["PolicyDocument"]["Statement"]
    assert "111122223333" in json.dumps(statement["Principal"])
    for function, may in (("follow-relay", True), ("supervise", True), ("ingest", False)):
        allowed = leading.statements(leading.role_of(function))
        assert any(name in text(each["Resource"]) for each in allowed) is may, function


def test_a_table_of_another_account_is_named_by_its_arn() -> None:
    """With its Region, in every Region of the stage."""
    template = made(sources={"main": ELECTED}, coordinator=ARN)
    url = environment_of(template, "follow-relay")["TIDINGS_COORDINATOR"]
    assert parse_coordinator(url) == CoordinatorUrl(ARN, "eu-west-1")
    allowed = template.statements(template.role_of("follow-relay"))
    assert [each["Action"] for each in allowed if each["Resource"] == ARN] == [
        sorted(COORDINATION_ACTIONS)
    ]


def test_D33_a_source_that_breaks_a_rule_is_not_deployed() -> None:
    """It is said when the template is made, not by each function when it starts."""
    with pytest.raises(WrongSetting, match="main: fall-off: is not known here"):
        made(sources={"main": {"url": URL, "fall-off": "wait"}})


def test_the_relay_may_wake_itself_and_the_followers(template: Template) -> None:
    """Its run ends before Lambda ends it; the sweep wakes it where that failed."""
    for function in ("follow-relay", "sweep", "supervise"):
        allowed = template.statements(template.role_of(function))
        woken = [text(each["Resource"]) for each in allowed if "Invoke" in text(each["Action"])]
        assert any("follow-relay" in each for each in woken), function
