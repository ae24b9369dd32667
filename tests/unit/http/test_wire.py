"""Declared fields: which values a request may have, and what an error says."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from tidings.core.errors import InvalidSetting, Rejected
from tidings.http import wire
from tidings.http.routes import DECLARED
from tidings.http.wire import Given, Kind

BODIES = [kind for each in DECLARED for kind in each.declared.values() if "body" in kind.parameters]


class Sample(Given):
    name: Annotated[str, Kind(wire.TEXT, wire.parse_text)]
    switch: wire.Switch = False
    limit: Annotated[int, wire.integer(1, 9)] = 5
    secret: Annotated[str, Kind(wire.TEXT, wire.parse_text, shown=False)] | None = None


@pytest.mark.parametrize(
    ("given", "field", "value", "rule"),
    [
        ({}, "name", None, "must be a non-empty string"),
        ({"name": ""}, "name", "", "must be a non-empty string"),
        ({"name": "a", "nope": "s3cret"}, "nope", None, "the known fields are name, switch,"),
        ({"name": "a", "switch": "1"}, "switch", "1", "must be true or false"),
        ({"name": "a", "limit": "7.0"}, "limit", "7.0", "must be a whole number from 1 to 9"),
        ({"name": "a", "limit": "10"}, "limit", "10", "must be a whole number from 1 to 9"),
        ({"name": "a", "secret": ""}, "secret", None, "must be a non-empty string"),
        ({"name": "a\ud800"}, "name", "a\ud800", "must not contain a lone surrogate"),
    ],
)
def test_an_error_names_field_value_and_rule(
    given: dict[str, Any], field: str, value: object, rule: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Sample.parse(given, InvalidSetting, "fields")
    assert (caught.value.field, caught.value.value) == (field, value)
    assert rule in caught.value.rule and "s3cret" not in str(caught.value)


def test_a_field_that_is_not_given_has_its_default() -> None:
    made = Sample.parse({"name": "a", "limit": "7"}, InvalidSetting, "fields")
    assert (made.name, made.switch, made.limit, made.secret) == ("a", False, 7, None)
    assert made.sent == {"name": "a", "limit": "7"}


@pytest.mark.parametrize("route", BODIES, ids=lambda each: each.name)
def test_no_field_of_a_body_holds_a_lone_surrogate(route: wire.Declared) -> None:
    """SQLite and DynamoDB refuse such a text, after other fields may have been written."""
    body = route.parameters["body"]
    for name in wire.fields_of(body):
        for value in ("\ud800", ["\ud800"], {"a": "\ud800"}):
            required = {each: "x" for each in wire.fields_of(body)}
            with pytest.raises(Rejected):
                body.parse({**required, name: value}, InvalidSetting, "fields")
