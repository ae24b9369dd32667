"""
Built-in functions on messages. Each returns the message, or None to leave it out.

A field is named by its path in `data`: `id`, `data.title`.
"""

from __future__ import annotations

import json
import logging
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.message import Message

Step = Callable[[Message], Message | None]

_log = logging.getLogger("tidings.pipelines")
_MISSING = object()
_EQUAL = {"==", "eq", "$eq"}
_ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    spelling: compare
    for sign, word, compare in (
        (">", "gt", operator.gt),
        (">=", "gte", operator.ge),
        ("<", "lt", operator.lt),
        ("<=", "lte", operator.le),
    )
    for spelling in (sign, word, f"${word}")
}
_MATCHES = "=~"
_OPS = frozenset({"insert", "update", "delete", "leave"})


def omit(*fields: str) -> Step:
    """Return a step that removes *fields*."""
    paths = [_path(each) for each in fields]

    def step(message: Message) -> Message:
        for path in paths:
            _remove(message.data, path)
        return message

    return _named(step, "omit", *fields)


def pick(*fields: str) -> Step:
    """Return a step that keeps only *fields*, and the type and id of the object."""
    paths = [_path(each) for each in (*fields, "type", "id")]

    def step(message: Message) -> Message:
        values = [(path, _value(message.data, path)) for path in paths]
        message.data = {}
        for path, value in values:
            if value is not _MISSING:
                _set(message.data, path, value)
        return message

    return _named(step, "pick", *fields)


def rename(fields: Mapping[str, str]) -> Step:
    """Return a step that renames fields: keys of *fields* are old names, values new ones."""
    paths = [(_path(old), _path(new)) for old, new in fields.items()]

    def step(message: Message) -> Message:
        for old, new in paths:
            value = _remove(message.data, old)
            if value is not _MISSING:
                _set(message.data, new, value)
        return message

    return _named(step, "rename", *(f"{old}={new}" for old, new in fields.items()))


def remap(namespaces: Mapping[str, str]) -> Step:
    """Return a step that renames namespaces: keys are old names, values new ones."""

    def step(message: Message) -> Message:
        message.namespace = namespaces.get(message.namespace, message.namespace)
        return message

    return _named(step, "remap", *(f"{old}={new}" for old, new in namespaces.items()))


def skip(field: str, comparison: str, match: Any) -> Step:
    """
    Return a step that keeps only messages with a matching *field*.

    *comparison* is `==`, `=~`, `>`, `>=`, `<` or `<=`, and *match* the value to compare with.
    Integers and floats are compared by value. A field that is missing or has another type does not
    match.

    Raises:
        WrongPipeline: the comparison is unknown.
    """
    path, holds = _path(field), _comparison(comparison, match)

    def step(message: Message) -> Message | None:
        return message if holds(_value(message.data, path)) else None

    return _named(step, "skip", field, comparison, repr(match))


def opfilter(*, whitelist: tuple[str, ...] = (), blacklist: tuple[str, ...] = ()) -> Step:
    """
    Return a step that keeps only the operations of *whitelist*, or all except *blacklist*.

    Raises:
        WrongPipeline: both or neither are given, or an operation is unknown.
    """
    if bool(whitelist) == bool(blacklist):
        raise WrongPipeline("opfilter needs a whitelist or a blacklist, and not both")
    for op in (*whitelist, *blacklist):
        if op not in _OPS:
            raise WrongPipeline(f"opfilter: {op!r} is none of {', '.join(sorted(_OPS))}")
    kept = frozenset(whitelist) or _OPS - frozenset(blacklist)

    def step(message: Message) -> Message | None:
        return message if message.op in kept else None

    return _named(step, "opfilter", *sorted(kept))


def pretty(spaces: int = 2) -> Step:
    """Return a step that logs each message and passes it on."""

    def step(message: Message) -> Message:
        text = json.dumps(message.data, indent=spaces, ensure_ascii=False)
        _log.info("%s %s %s", message.op, message.namespace, text)
        return message

    return _named(step, "pretty", str(spaces))


def name_of(step: Step) -> str:
    """Return the name of a step, for people."""
    return getattr(step, "shown", getattr(step, "__name__", type(step).__name__))


def _named(step: Step, name: str, *arguments: str) -> Step:
    step.shown = f"{name}({', '.join(arguments)})"  # type: ignore[attr-defined]
    return step


def _comparison(name: str, match: Any) -> Callable[[Any], bool]:
    if name in _EQUAL:
        return lambda value: _same(value, match)
    if name == _MATCHES:
        pattern = _pattern(match)
        return lambda value: isinstance(value, str) and pattern.search(value) is not None
    if name not in _ORDERED:
        known = ", ".join(["==", _MATCHES, *_ORDERED])
        raise WrongPipeline(f"skip: {name!r} is no comparison; there are {known}")
    compare = _ORDERED[name]
    return lambda value: _comparable(value, match) and compare(value, match)


def _pattern(match: Any) -> re.Pattern[str]:
    try:
        return re.compile(match)
    except (re.error, TypeError) as error:
        raise WrongPipeline(f"skip: {match!r} is no regular expression: {error}") from None


def _same(value: Any, match: Any) -> bool:
    """Compare by JSON's rules: unlike in Python, true and 1 differ."""
    return isinstance(value, bool) == isinstance(match, bool) and bool(value == match)


def _comparable(value: Any, match: Any) -> bool:
    for kind in ((int, float), (str,)):
        if isinstance(match, kind) and not isinstance(match, bool):
            return isinstance(value, kind) and not isinstance(value, bool)
    return False


def _path(field: str) -> list[str]:
    if not field or "" in field.split("."):
        raise WrongPipeline(f"{field!r} is no name of a field")
    return field.split(".")


def _value(data: Any, path: list[str]) -> Any:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return _MISSING
        data = data[part]
    return data


def _remove(data: Any, path: list[str]) -> Any:
    holder = _value(data, path[:-1])
    return holder.pop(path[-1], _MISSING) if isinstance(holder, dict) else _MISSING


def _set(data: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = data.setdefault(part, {})
        if not isinstance(inner, dict):
            return
        data = inner
    data[path[-1]] = value
