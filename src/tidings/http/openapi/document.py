"""
Generate `GET /openapi.json`: the routes in OpenAPI 3.1, for client generators and fuzzing.

It is generated from the table of routes, so that it has exactly the existing routes. Responses are
described by their content type only; docs/PROTOCOL.md has the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidings.core.version import VERSION
from tidings.http.openapi.schemas import DOCS, PARAMETERS, SCHEMAS
from tidings.http.routes import DEFAULT_PATH, HTTP_ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.http.openapi.schemas import Doc
    from tidings.http.routes import HttpRoute

_IN_PATH = re.compile(r"\{(\w+)\}")
_OF_A_FEED = "/feeds/{feed}"


def document(feeds: Iterable[str], prefix: str = "") -> dict[str, Any]:
    """Return the document for *feeds*; *prefix* is the path below which they are served."""
    paths: dict[str, dict[str, Any]] = {}
    for route in HTTP_ROUTES:
        if route.path != DEFAULT_PATH:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, feeds)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidings", "version": VERSION, "description": "docs/PROTOCOL.md"},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "key": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def doc_of(route: HttpRoute) -> Doc:
    """Return the description of *route*; it is the same with and without a feed in the path."""
    path = route.path.removeprefix(_OF_A_FEED)
    return DOCS[f"{route.method} {'/ops' if path == '/' else path}"]


def _operation(route: HttpRoute, feeds: Iterable[str]) -> dict[str, Any]:
    doc = doc_of(route)
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": doc.summary,
        "description": f"docs/PROTOCOL.md, section {doc.section}",
        "parameters": [
            *(_path_parameter(name, feeds) for name in _IN_PATH.findall(route.path)),
            *(_parameter("query", name) for name in doc.query),
            *(_parameter("header", name) for name in doc.headers),
        ],
        "responses": {
            str(doc.status): _answer(doc),
            "default": _error(doc),
        },
    }
    if doc.body:
        content = {kind: {"schema": schema} for kind, schema in doc.body}
        operation["requestBody"] = {"required": True, "content": content}
    if route.need.role is not None:
        operation["security"] = [{"password": []}, {"key": []}]
    return operation


def _operation_id(route: HttpRoute) -> str:
    """Return the operation id, such as `getFeedsFeedOps` for `GET /feeds/{feed}/ops`."""
    words = re.findall(r"\w+", route.path)
    return route.method.lower() + ("".join(word.title() for word in words) or "Root")


def _parameter(place: str, name: str) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": PARAMETERS[name]}


def _path_parameter(name: str, feeds: Iterable[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if name == "feed":
        schema = {"type": "string", "enum": sorted(feeds)}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _error(doc: Doc) -> dict[str, Any]:
    """Return the error response; the paths of section 12 have changeagent's error format."""
    schema = {} if doc.section.startswith("12") else {"$ref": "#/components/schemas/Error"}
    return {"description": "an error", "content": {"application/json": {"schema": schema}}}


def _answer(doc: Doc) -> dict[str, Any]:
    content: dict[str, Any] = {kind: {"schema": schema} for kind, schema in doc.answers}
    if doc.answer and not content:
        content = {doc.answer: {}}
    return {"description": "done", **({"content": content} if content else {})}
