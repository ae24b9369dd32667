"""Make wrong requests to each operation of a served `/openapi.json`.

They are made once, when answers are recorded, and stored with their answers. The document may
therefore be made in another way later.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Schema = dict[str, Any]

SECRET = "hunter2-Zk41q"  # in places where none is expected; no answer may repeat it
CONSUMER, HOOK = "search", "hook"
_IN_PATH = {"id": "6927c1d5000000002a000000", "part": "goroutines", "format": "tidings"}
_NAMES = ("UPPER", "a" * 300, "%00", "-", "%C3%28")
# Values for each field of a body; most of them have the wrong type.
_VALUES: Mapping[str, Any] = {
    "null": None,
    "text": "x y",
    "empty": "",
    "number": -7,
    "point": 1.0,
    "true": True,
    "list": [],
    "list of numbers": [1],
    "object": {},
    "long": "z" * 5000,
    "many": ["a"] * 300,
}
# Values for each parameter and header.
_TEXTS: Mapping[str, str] = {
    "text": "x y",
    "negative": "-1",
    "point": "7.0",
    "one": "1",
    "upper": "TRUE",
    "empty": "",
    "huge": "9" * 30,
    "list": "[1]",
    "long": "y" * 3000,
}
_BODIES: Mapping[str, str] = {
    "nothing": "",
    "no JSON": "{",
    "null": "null",
    "list": "[]",
    "text": '"x"',
    "number": "NaN",
    "nested": "[" * 200,
    "a surrogate": '{"why":"\\ud800"}',
}
_HEADERS: Mapping[str, dict[str, str]] = {
    "type text/html": {"content-type": "text/html"},
    "type form": {"content-type": "application/x-www-form-urlencoded"},
    "encoding br": {"content-encoding": "br"},
    "not gzip": {"content-encoding": "gzip"},
}


@dataclass(frozen=True)
class Request:
    """A request; *what* is wrong in it."""

    what: str
    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None


class Document:
    """The operations of a served document."""

    def __init__(self, document: Schema) -> None:
        self._document = document

    def operations(self) -> Iterator[tuple[str, str, str]]:
        """Yield id, method and path of each operation."""
        for path, methods in self._document["paths"].items():
            for method, operation in methods.items():
                yield operation["operationId"], method.upper(), path

    def wrong_requests(self, method: str, path: str, feed: str) -> Iterator[Request]:
        """Yield requests to the operation that is *method* at *path*, in the feed *feed*."""
        operation = self._document["paths"][path][method.lower()]
        names = {"feed": feed, "name": HOOK if "/hooks/" in path else CONSUMER, **_IN_PATH}
        parameters = [self._resolved(each) for each in operation["parameters"]]
        shown = [each for each in parameters if each["in"] == "query"]
        query = {each["name"]: _example(each) for each in shown if each.get("required")}
        query |= {"confirm": "another"} if "confirm" in query else {}
        content = operation.get("requestBody", {}).get("content", {})
        right = Request("", method, path.format(**names), _joined(query))
        for kind, media in itertools.islice(content.items(), 1):
            example = media.get("example", {})
            body = example if isinstance(example, str) else json.dumps(example)
            right = replace(right, headers={"content-type": kind}, body=body)
            yield from self._of_body(right, self._resolved(media["schema"]))

        for name, wrong in itertools.product(names, _NAMES):
            if f"{{{name}}}" in path:
                at = path.format(**{**names, name: wrong})
                yield replace(right, what=f"{name} in the path", path=at)
        yield replace(right, what="unknown parameter", query=_joined({**query, "nope": SECRET}))
        yield from _of_query(right, query, shown)
        headers = [each["name"] for each in parameters if each["in"] == "header"]
        for name, (what, text) in itertools.product(headers, _TEXTS.items()):
            yield replace(right, what=f"{name}: {what}", headers={**right.headers, name: text})
        if not content and method in ("POST", "PUT"):
            yield replace(right, what="a body", body='{"nope":1}')

    def _of_body(self, right: Request, schema: Schema) -> Iterator[Request]:
        for what, text in _BODIES.items():
            yield replace(right, what=f"body: {what}", body=text)
        yield replace(right, what="body: no type", headers={})
        for what, headers in _HEADERS.items():
            yield replace(right, what=f"body: {what}", headers={**right.headers, **headers})
        for option in schema.get("anyOf", [schema]):
            found = self._resolved(option)
            found = self._resolved(found["items"]) if found.get("type") == "array" else found
            if "properties" in found and right.body is not None and right.body[0] in "[{":
                yield from _of_object(right, [*found["properties"]])

    def _resolved(self, part: Schema) -> Schema:
        while "$ref" in part:
            found = self._document
            for step in part["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            part = found
        return part


def _of_query(right: Request, query: Mapping[str, str], shown: list[Schema]) -> Iterator[Request]:
    for each in shown:
        name, others = each["name"], {**query}
        others.pop(name, None)
        if name in query:
            yield replace(right, what=f"{name}: missing", query=_joined(others))
        for what, text in _TEXTS.items():
            yield replace(right, what=f"{name}: {what}", query=_joined({**others, name: text}))
        twice = [f"{name}={_example(each)}"] * 2 + ([_joined(others)] if others else [])
        yield replace(right, what=f"{name}: twice", query="&".join(twice))
    for first, second in itertools.pairwise(each["name"] for each in shown):
        both = _joined({**query, first: "x y", second: "-1"})
        yield replace(right, what=f"{first} and {second}", query=both)


def _of_object(right: Request, names: list[str]) -> Iterator[Request]:
    """Yield requests with an object in which one of the fields *names* is wrong, or two are."""
    assert right.body is not None
    example = json.loads(right.body)
    is_list = isinstance(example, list)
    valid = example[0] if is_list else example

    def sent(what: str, fields: Schema | str) -> Request:
        text = fields if isinstance(fields, str) else json.dumps(fields)
        return replace(right, what=what, body=f"[{text}]" if is_list else text)

    yield sent("unknown field", {**valid, "nope": SECRET})
    for name in names:
        others = {other: value for other, value in valid.items() if other != name}
        if name in valid:
            yield sent(f"{name}: missing", others)
        for what, value in _VALUES.items():
            yield sent(f"{name}: {what}", {**others, name: value})
        once = json.dumps({**valid, name: 1})
        yield sent(f"{name}: twice", f"{once[:-1]}, {json.dumps(name)}: 2}}")
    for first, second in itertools.pairwise(names):
        yield sent(f"{first} and {second}", {**valid, first: -7, second: {"nope": 1}})


def _example(parameter: Schema) -> str:
    schema = parameter["schema"]
    return str((schema.get("examples") or schema.get("enum") or [schema.get("minimum", 0)])[0])


def _joined(query: Mapping[str, str]) -> str:
    return "&".join(f"{name}={value.replace(' ', '%20')}" for name, value in query.items())
