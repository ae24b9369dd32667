"""Evaluate statements of IAM as far as the templates write them.

A statement with another part, effect or condition is an error, never a permission.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Statement = Mapping[str, Any]
Values = tuple[str, ...]


class Unreadable(Exception):
    """A policy says what this evaluator does not know."""


@dataclass(frozen=True, slots=True)
class Call:
    """One thing asked of AWS; *context* has what conditions may look at, by lower-case key."""

    action: str
    resource: str
    context: Mapping[str, Values] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}"


def allowed(statements: Iterable[Statement], call: Call) -> bool:
    """Return True if a statement allows *call*."""
    return any([covers(each, call) for each in statements])  # reads all of them


def covers(statement: Statement, call: Call) -> bool:
    """Return True if *statement* allows *call*.

    Raises:
        Unreadable: it is not as the templates write them.
    """
    if {*statement} - {"Condition"} != {"Effect", "Action", "Resource"}:
        raise Unreadable(f"a statement with {sorted(statement)}")
    conditions = dict(statement.get("Condition", {}))
    equal = conditions.pop("StringEquals", {})
    if statement["Effect"] != "Allow" or conditions:
        raise Unreadable(f"a statement of {statement['Effect']} with {sorted(conditions)}")
    return (
        any(_matches(each, call.action) for each in as_list(statement["Action"]))
        and any(_matches(each, call.resource) for each in as_list(statement["Resource"]))
        and all(
            {*call.context.get(key.lower(), ())} & {*as_list(wanted)}
            for key, wanted in equal.items()
        )
    )


def as_list(value: Any) -> list[Any]:
    """IAM writes lists of one as their element."""
    return value if isinstance(value, list) else [value]


def _matches(pattern: str, value: str) -> bool:
    return _compiled(pattern).fullmatch(value) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern in which `*` is any text and `?` any character."""
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(each) or re.escape(each) for each in pattern), re.DOTALL)
