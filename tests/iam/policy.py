"""
What statements of IAM allow, by AWS's rules.

What a policy says that is not understood here is an error, never a permission.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

Statement = Mapping[str, Any]
Values = tuple[str, ...]
_PARTS = {
    "Sid",
    "Effect",
    "Action",
    "NotAction",
    "Resource",
    "NotResource",
    "Condition",
}
_OPERATOR = re.compile(r"(?:(ForAllValues|ForAnyValue):)?(\w+?)(IfExists)?")


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
    """Some statement allows it, and none denies it."""
    effects = {each["Effect"] for each in statements if covers(each, call)}
    return effects == {"Allow"}


def covers(statement: Statement, call: Call) -> bool:
    """
    Whether *statement* speaks of *call*.

    Raises:
        Unreadable: nobody here knows.
    """
    if not {*statement} <= _PARTS or statement["Effect"] not in ("Allow", "Deny"):
        raise Unreadable(f"a statement with {sorted(statement)}")
    return (
        _named(statement, "Action", call.action, lower=True)
        and _named(statement, "Resource", call.resource, lower=False)
        and all(
            _holds(operator, key, as_list(values), call)
            for operator, wanted in statement.get("Condition", {}).items()
            for key, values in wanted.items()
        )
    )


def as_list(value: Any) -> list[Any]:
    """IAM writes lists of one as their element."""
    return value if isinstance(value, list) else [value]


def _named(statement: Statement, part: str, value: str, *, lower: bool) -> bool:
    """By the part itself or by its opposite; actions are the same in any case."""
    if (part in statement) == (f"Not{part}" in statement):
        raise Unreadable(f"a statement has either {part} or Not{part}")
    wanted = as_list(statement.get(part, statement.get(f"Not{part}")))
    if lower:
        wanted, value = [each.lower() for each in wanted], value.lower()
    return any(_matches(each, value) for each in wanted) == (part in statement)


def _matches(pattern: str, value: str) -> bool:
    return _compiled(pattern).fullmatch(value) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """`*` is any text and `?` any character; everything else is itself."""
    wild = {"*": ".*", "?": "."}
    return re.compile("".join(wild.get(each) or re.escape(each) for each in pattern), re.DOTALL)


def _equal(wanted: str, found: str) -> bool:
    return wanted == found


_OPERATORS: dict[str, tuple[Callable[[str, str], bool], bool]] = {
    "StringEquals": (_equal, True),
    "StringNotEquals": (_equal, False),
    "StringLike": (_matches, True),
    "StringNotLike": (_matches, False),
    "ArnLike": (_matches, True),
    "ArnNotLike": (_matches, False),
}


def _holds(name: str, key: str, wanted: list[str], call: Call) -> bool:
    """One condition; a key that the call does not have fails all but its opposites."""
    parsed = _OPERATOR.fullmatch(name)
    if parsed is None or parsed[2] not in _OPERATORS:
        raise Unreadable(f"the condition {name}")
    matches, positive = _OPERATORS[parsed[2]]
    found = call.context.get(key.lower())
    if found is None:
        return not positive or bool(parsed[3]) or parsed[1] == "ForAllValues"
    if len(found) > 1 and parsed[1] is None:
        raise Unreadable(f"the condition {name} of {key}, which has several values")
    results = [any(matches(each, value) for each in wanted) == positive for value in found]
    return any(results) if parsed[1] == "ForAnyValue" else all(results)
