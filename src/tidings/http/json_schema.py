"""Derive JSON Schemas and examples from the types of declared fields (`wire`)."""

from __future__ import annotations

import types
import typing
from typing import TYPE_CHECKING, Any

from tidings.http import wire
from tidings.http.wire import Schema, ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def or_null(schema: Schema) -> Schema:
    if schema.get("type", "object") != "object" and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def name_of(hint: Any) -> str:
    """Return the name of the schema of the type *hint*, or "" if it has none."""
    if _is_fields(hint):
        return str(hint.schema_name)
    return next((each.value for each in wire.extras_of(hint) if isinstance(each, wire.Name)), "")


def schema_of(hint: Any) -> Schema:
    """Return the schema of the type *hint*, or a reference if it has a name."""
    if isinstance(hint, dict):
        return hint
    return ref(name) if (name := name_of(hint)) else _described_schema(hint)


def _described_schema(hint: Any) -> Schema:
    found = _plain_schema(hint)
    for each in wire.extras_of(hint):
        if isinstance(each, str):
            found = {**found, "description": each}
        if isinstance(each, wire.Example) and "$ref" not in found:
            found = {**found, "examples": [each.value]}
    return found


def _plain_schema(hint: Any) -> Schema:
    kind = wire.kind_of(hint)
    if kind and not kind.schema.keys() <= {"minItems", "maxItems"}:
        return kind.schema
    if kind:
        return {**_plain_schema(hint.__origin__), **kind.schema}
    hint = getattr(hint, "__origin__", hint) if wire.extras_of(hint) else hint
    arguments = typing.get_args(hint)
    match typing.get_origin(hint) or hint:
        case types.UnionType | typing.Union:
            return _union([each for each in arguments if not _is_unset(each)])
        case builtin if builtin is list:
            return {"type": "array", "items": schema_of(arguments[0])}
        case builtin if builtin is dict:
            values = schema_of(arguments[1])
            return {"type": "object", **({"additionalProperties": values} if values else {})}
        case typing.Any:
            return {}
        case declared if issubclass(declared, wire.Fields):
            return ref(declared.schema_name) if declared.schema_name else object_schema(declared)
    return {str: wire.PLAIN, int: wire.INTEGER, bool: {"type": "boolean"}}[hint]


def _is_unset(hint: Any) -> bool:
    return hint is wire.Unset or typing.get_args(hint) == (wire.Unset.UNSET,)


def _union(members: list[Any]) -> Schema:
    others = [schema_of(each) for each in members if each is not types.NoneType]
    single = others[0] if len(others) == 1 else {"anyOf": others}
    return or_null(single) if types.NoneType in members else single


def object_schema(of: type[wire.Fields]) -> Schema:
    """Return the schema of an object with the fields of *of*. A request has no other fields.

    A response may have more, because later releases may add some.
    """
    known = wire.fields_of(of)
    required = [name for name, field in known.items() if field.is_required]
    return {
        "type": "object",
        **({"required": required} if required else {}),
        "properties": {name: schema_of(field.hint) for name, field in known.items()},
        **({"additionalProperties": False} if issubclass(of, wire.Given) else {}),
        **of.keywords,
        **({"examples": [example_of(of)]} if of.schema_name else {}),
    }


def example_of(hint: Any) -> Any:
    """Return an example of a value of the type *hint*."""
    for each in wire.extras_of(hint):
        if isinstance(each, wire.Example):
            return each.value
    plain = hint.__origin__ if wire.extras_of(hint) else hint
    members = typing.get_args(plain)
    if types.NoneType in members:
        return None
    if typing.get_origin(plain) in (types.UnionType, typing.Union):
        return example_of(next(each for each in members if not _is_unset(each)))
    if typing.get_origin(plain) is list:
        return [example_of(members[0])] if _is_fields(members[0]) else []
    if _is_fields(plain):
        return plain.example or _example_object(plain)
    schema = _described_schema(hint)
    if shown := schema.get("examples") or schema.get("enum"):
        return shown[0]
    if "const" in schema:
        return schema["const"]
    by_type = {"integer": schema.get("minimum", 0), "boolean": False, "object": {}, "array": []}
    return by_type.get(schema.get("type", "string"), "")


def _example_object(of: type[wire.Fields]) -> dict[str, Any]:
    known = wire.fields_of(of).items()
    shown = {name: example_of(field.hint) for name, field in known if _is_shown(field)}
    return {**example_of(of.__base__), **shown} if of.is_partial else shown


def _is_shown(field: wire.Field) -> bool:
    """Return True if the field must be there, has an example, or contains an object."""
    members = (field.hint, *typing.get_args(field.hint))
    parts = [part for member in members for part in (member, *typing.get_args(member))]
    return field.is_required or any(isinstance(p, wire.Example) or _is_fields(p) for p in parts)


def _is_fields(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, wire.Fields)


def declared_types(hint: Any) -> Iterator[Any]:
    """Yield the types that have a named schema in the type *hint*, some more than once."""
    if name_of(hint):
        yield hint
    if _is_fields(hint):
        for field in wire.fields_of(hint).values():
            yield from declared_types(field.hint)
    for each in (getattr(hint, "__origin__", None), *typing.get_args(hint)):
        if each is not None and not isinstance(each, str):
            yield from declared_types(each)


def declared_schemas(hints: Iterable[Any]) -> dict[str, Schema]:
    """Return the named schemas in *hints* by name."""
    found = {each for hint in hints for each in declared_types(hint)}
    return {name: _definition(each) for name, each in sorted((name_of(e), e) for e in found)}


def _definition(hint: Any) -> Schema:
    if isinstance(hint, type):
        return object_schema(hint)
    return {**_described_schema(hint), "examples": [example_of(hint)]}
