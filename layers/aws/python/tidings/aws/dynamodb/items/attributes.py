"""Attribute values as DynamoDB's API spells them. Numbers travel as text."""

from __future__ import annotations

from binascii import a2b_base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Item = dict[str, Any]
Value = dict[str, Any]


def text(value: str) -> Value:
    return {"S": value}


def number(value: int) -> Value:
    return {"N": str(value)}


def text_of(item: Mapping[str, Any], name: str) -> str:
    """The text under *name*; empty where the attribute is left out."""
    value = item.get(name)
    return value["S"] if value else ""


def number_of(item: Mapping[str, Any], name: str) -> int:
    """The number under *name*; 0 where the attribute is left out."""
    value = item.get(name)
    return int(value["N"]) if value else 0


def texts(values: Sequence[str]) -> Value:
    return {"L": [text(value) for value in values]}


def texts_of(item: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """The texts under *name*; None where the attribute is left out."""
    values = item.get(name)
    return tuple(value["S"] for value in values["L"]) if values else None


def without_empty(values: Mapping[str, str]) -> Item:
    """Attributes for the texts that are not empty: the others are left out."""
    return {name: text(value) for name, value in values.items() if value}


def body(value: str | bytes) -> Value:
    """A body that is text while it is small, deflated when it is not."""
    return text(value) if isinstance(value, str) else {"B": value}


def body_of(value: Mapping[str, Any]) -> str | bytes:
    if "S" in value:
        inflated: str = value["S"]
        return inflated
    packed: str | bytes = value["B"]  # still base64 where `raw_query` has read the answer
    return a2b_base64(packed) if isinstance(packed, str) else packed


def seconds(ms: int) -> int:
    """Whole seconds, rounded up."""
    return -(-ms // 1000)


def expiry(ms: int) -> Item:
    """The TTL attribute; none for 0, which is never."""
    return {"expires": number(seconds(ms))} if ms else {}


def expiry_ms(item: Mapping[str, Any]) -> int:
    return number_of(item, "expires") * 1000
