"""The declared fields of requests and responses: stable names, and no secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidings.http.json_schema import declared_types
from tidings.http.openapi import SCHEMAS
from tidings.http.routes import DECLARED
from tidings.http.wire import Fields, Given

RECORDED = Path(__file__).parent / "schemas.txt"
SECRET = ("digest", "hash", "password", "secret", "token")
# Each is sent once, to the client that creates it, or is no secret.
SENT = {
    ("Webhook", "secret"),
    ("Webhook", "secrets"),  # their number
    ("WebhookSecret", "secret"),
    ("RelayPasswordSet", "password"),  # `set` or `none`
}


def _form(schema: Any) -> str:
    """Return a schema in one line, without what is only for readers."""
    if not isinstance(schema, dict):
        return str(schema)
    shown = {key: schema[key] for key in sorted(schema.keys() - {"examples", "description"})}
    if shown.keys() == {"type"}:
        return str(shown["type"])
    if shown.keys() == {"$ref"}:
        return str(shown["$ref"]).rpartition("/")[2]
    return " ".join(f"{key}={_value(key, value)}" for key, value in shown.items())


def _value(key: str, value: Any) -> str:
    if key == "properties":
        return "{" + ", ".join(f"{name}: {_form(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_form(each) for each in value) + "]"
    return f"({_form(value)})" if isinstance(value, dict) else str(value)


def test_no_schema_changes_by_accident() -> None:
    """A client stops to work if a field is renamed; `RECORD=1` writes the file again."""
    text = "".join(f"{name}: {_form(schema)}\n" for name, schema in sorted(SCHEMAS.items()))
    if "RECORD" in os.environ:
        RECORDED.write_text(text)
    assert RECORDED.read_text() == text


def _responses() -> list[type[Fields]]:
    routes = [each for kind in DECLARED for each in kind.declared.values()]
    hints = [each.hint("return") for each in routes]
    hints += [hint for each in routes for _, hint in each.answers or ()]
    found = {each for hint in hints for each in declared_types(hint) if isinstance(each, type)}
    return sorted(found, key=lambda each: each.schema_name)


@pytest.mark.parametrize("response", _responses(), ids=lambda each: each.schema_name)
def test_no_response_has_a_field_for_a_secret(response: type[Fields]) -> None:
    names = {*_names(SCHEMAS[response.schema_name])}
    found = {(response.schema_name, name) for name in names if any(s in name for s in SECRET)}
    assert found <= SENT and not issubclass(response, Given)


def _names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        for each in schema.values():
            yield from _names(each)
