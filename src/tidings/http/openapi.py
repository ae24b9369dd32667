"""Serve `GET /openapi.json`, which describes the routes in OpenAPI 3.1 for client generators.

The document is generated from the table of routes, the classes of errors and the data below, so it
has exactly the routes and codes that exist. docs/PROTOCOL.md has the rules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tidings.core import errors, limits
from tidings.core.auth import origins
from tidings.core.auth.guard import Bounded, Role, password_role
from tidings.core.version import VERSION
from tidings.http.request import InvalidEncoding, Overloaded, UnsupportedEncoding
from tidings.http.route_docs import (
    DOCS,
    HTML,
    JSON,
    PARAMETERS,
    PATH_PARAMETERS,
    TAG_SUMMARIES,
    TAGS,
)
from tidings.http.routes import DECLARED, HTTP_ROUTES
from tidings.http.schemas import EXAMPLE_FEED, Schema, ref
from tidings.http.schemas import SCHEMAS as UNDECLARED
from tidings.http.wire import DEFAULT_PATH, Doc, HttpRoute, declared_schemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidings.core.auth.guard import Need

_PLAIN = {"type": "string"}
SCHEMAS = UNDECLARED | declared_schemas(
    each for kind in DECLARED for each in kind.declared.values()
)
_OF_PARAMETERS = ("description", "allowEmptyValue")
_IN_PATH = re.compile(r"\{(\w+)\}")
_OF_A_FEED = "/feeds/{feed}"
# The headers of responses.
_HEADERS: dict[str, Schema] = {
    "Last-Event-ID": {"description": "the cursor at which the stream starts (7.5)"},
    "WWW-Authenticate": {"description": "the scheme of a password (10.5)"},
    "Retry-After": {"description": "the seconds after which a client may try again"},
    "Accept-Encoding": {"description": "the encodings of a body that are supported (4.14)"},
}
_STATUS_HEADERS = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}

_OF_CREDENTIAL = (
    errors.NoPasswordSet,
    errors.WrongPassword,
    errors.WrongKey,
    errors.OutsideKey,
    errors.TooManyRequests,
)
_OF_FEED = (errors.InvalidFeed, errors.UnknownFeed, errors.FeedDeleted)
_OF_BODY = (
    InvalidEncoding,
    errors.TooLarge,
    errors.WrongContentType,
    UnsupportedEncoding,
    Overloaded,
)
_OF_EVERY_ROUTE = (origins.UnknownHost,)
# The routes of the host, which belong to no feed.
_OF_HOST = ("/openapi.json", "/asyncapi.json", "/schemas/{format}", "/health", "/feeds", "/relays")
# The meanings of the codes with status 503, which have no classes of their own.
_UNAVAILABLE = {
    errors.Unavailable.code: "A store did not answer in time. Repeat the request.",
    **{code: f"A server: {problem}." for code, problem in errors.STORAGE_PROBLEMS.items()},
}


@dataclass(frozen=True, slots=True)
class _Path:
    """A path of the document: *route* with *path*, in which an action replaces its parameter."""

    route: HttpRoute
    path: str
    need: Need


def document(feeds: Iterable[str], prefix: str = "") -> dict[str, Any]:
    """Return the document for *feeds*; *prefix* is the path below which they are served."""
    builder = _Builder(sorted(feeds))
    paths: dict[str, dict[str, Any]] = {}
    for each in described_paths():
        paths.setdefault(each.path, {})[each.route.method.lower()] = builder.operation(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidings",
            "version": VERSION,
            "summary": "a change feed: post what changed; consumers receive it in order",
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": prefix or "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAG_SUMMARIES.items()],
        "paths": paths,
        "components": builder.components(),
    }


_DESCRIPTION = (
    "docs/PROTOCOL.md has the rules; numbers in parentheses are sections of it. "
    "A feed with `compat=oplog` answers errors of `/ops` without a body (4.8). "
    "A request that violates HTTP itself is answered by 4.13. "
    "`/asyncapi.json` describes the messages of streams, WebSockets and webhooks."
)


def described_paths() -> Iterator[_Path]:
    """Yield the paths of all routes. A route with an action in its path yields one for each."""
    declared = {key: each for kind in DECLARED for key, each in kind.declared.items()}
    for route in HTTP_ROUTES:
        below = route.path.removesuffix("{action}")
        if route.path == DEFAULT_PATH:
            continue
        if below == route.path:
            yield _Path(route, route.path, route.need)
        else:
            for key, each in declared.items():
                if each.action and key == f"{route.method} {below}{each.action}":
                    yield _Path(route, below + each.action, each.need)


def doc_of(method: str, path: str) -> Doc:
    """Return the description of a path, which is the same with and without a feed in it."""
    path = path if path == _OF_A_FEED else path.removeprefix(_OF_A_FEED)
    return DOCS[f"{method} {'/ops' if path == '/' else path}"]


class _Builder:
    """The parts of a document; it collects the components that operations refer to."""

    def __init__(self, feeds: list[str]) -> None:
        self._feeds = feeds
        self._responses: dict[str, Any] = {}
        self._codes: dict[str, str] = {}
        self._declared, self._parameter_keys = _declared_parameters()
        self._feed_paths = {route.path for route in HTTP_ROUTES}

    def operation(self, path: _Path) -> dict[str, Any]:
        doc = doc_of(path.route.method, path.path)
        operation: dict[str, Any] = {
            "operationId": self._operation_id(path, doc),
            "tags": [tag_of(doc.section)],
            "summary": doc.summary,
            "description": f"{_describe_need(path.need)} See docs/PROTOCOL.md, {doc.section}.",
            "parameters": [*self._parameters(path, doc)],
            "responses": {
                **_successes(doc, is_root=path.path == "/"),
                **self._errors(path, doc),
            },
        }
        if doc.body:
            content = {kind: _media(schema) for kind, schema in doc.body}
            operation["requestBody"] = {"required": not doc.optional, "content": content}
        operation["security"] = [] if path.need.role is None else _security(path.need.role)
        return operation

    def components(self) -> dict[str, Any]:
        return {
            "schemas": SCHEMAS,
            "responses": dict(sorted(self._responses.items())),
            "parameters": {
                **{f"path.{_parameter_key(name)}": self._in_path(name) for name in PATH_PARAMETERS},
                **{_parameter_key(name): _parameter(name) for name in PARAMETERS},
                **self._declared,
            },
            "examples": {
                code: {
                    "summary": meaning,
                    "value": _error_example(code, meaning),
                }
                for code, meaning in sorted(self._codes.items())
            },
            "headers": {name: {**header, "schema": _PLAIN} for name, header in _HEADERS.items()},
            "securitySchemes": {
                "password": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "a password of the feed, or a key, with any user name (10.2)",
                },
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "tdk_<id>_<secret>",
                    "description": "a key of the feed or of the host (17)",
                },
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "a token of the issuer that the deployment trusts (10.8)",
                },
            },
        }

    def _operation_id(self, path: _Path, doc: Doc) -> str:
        """Return the name of a method in generated clients.

        The paths without a feed, which mean the feed `main`, have a name of their own.
        """
        name = doc.name or _name_from(path)
        if path.path.startswith(_OF_A_FEED):
            return name
        if path.path == "/":
            return f"{name}Root"
        return f"{name}Main" if _OF_A_FEED + path.path in self._feed_paths else name

    def _parameters(self, path: _Path, doc: Doc) -> Iterator[dict[str, Any]]:
        for name in _IN_PATH.findall(path.path):
            known = "part:raft" if "/raft/" in path.path else name
            yield {"$ref": f"#/components/parameters/path.{_parameter_key(known)}"}
        declared = self._parameter_keys.get(f"{path.route.method} {path.path}", ())
        for name in (*doc.query, *declared, *doc.headers):
            yield {"$ref": f"#/components/parameters/{_parameter_key(name)}"}

    def _in_path(self, name: str) -> dict[str, Any]:
        """Return the parameter *name* of paths. The examples of a feed are feeds that exist."""
        schema = {**PATH_PARAMETERS[name]}
        if name == "feed":
            schema["examples"] = self._feeds[: limits.FEEDS_NAMED] or [EXAMPLE_FEED]
        shown = name.partition(":")[0]
        return {"name": shown, "in": "path", "required": True, **_described(schema)}

    def _errors(self, path: _Path, doc: Doc) -> dict[str, Any]:
        by_status: dict[int, list[str]] = {}
        meanings: dict[str, str] = {}
        for code, status, meaning in rejections(path.route, path.need, doc):
            meanings[code] = meaning
            by_status.setdefault(status, []).append(code)
        kind = doc.error or ("ChangesError" if doc.section.startswith("12") else "Error")
        if kind == "Error":
            self._codes.update(meanings)
        return {
            str(status): self._error(status, sorted(codes), kind, is_empty=status in doc.empty)
            for status, codes in sorted(by_status.items())
            if status not in (doc.status, *doc.more, *(other for other, _, _ in doc.others))
        }

    def _error(self, status: int, codes: list[str], kind: str, *, is_empty: bool) -> dict[str, Any]:
        """Return a reference to the response with *status* for *codes*, a body of the schema."""
        if kind == "ChangesError" and status == 401:
            is_empty = True  # as changeagent answered
        key = ".".join((str(status), "" if is_empty else kind, *codes)).replace(".Error.", ".")
        if key not in self._responses:
            encoding = "Accept-Encoding" if UnsupportedEncoding.code in codes else None
            header = _STATUS_HEADERS.get(status, encoding)
            reference = {"$ref": f"#/components/headers/{header}"}
            self._responses[key] = {
                "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
                **({} if is_empty else _error_content(codes, kind)),
                **({"headers": {header: reference}} if header else {}),
            }
        return {"$ref": f"#/components/responses/{key}"}


def rejections(route: HttpRoute, need: Need, doc: Doc) -> Iterator[tuple[str, int, str]]:
    """Yield code, status and meaning of each error with which *route* may be answered, once."""
    found: list[type[errors.Rejected]] = [*_OF_EVERY_ROUTE, *doc.errors]
    if need.role is not None:
        found += _OF_CREDENTIAL
    if route.path not in _OF_HOST:
        found += _OF_FEED
    if route.method not in origins.READING:
        found += (origins.ForeignOrigin, errors.WrongContentType)
    if doc.body:
        found += _OF_BODY
    for error in dict.fromkeys(found):
        yield error.code, error.status, _meaning(error)
    for code, meaning in _UNAVAILABLE.items():
        yield code, 503, meaning


def _meaning(error: type[errors.Rejected]) -> str:
    """Return the first sentence of the documentation of *error*."""
    text = " ".join((error.__doc__ or "").split())
    return text.split(". ")[0].rstrip(".") + "."


def tag_of(section: str) -> str:
    return TAGS.get(section) or TAGS[section.partition(".")[0]]


def _name_from(path: _Path) -> str:
    words = re.findall(r"\w+", path.path.removeprefix(_OF_A_FEED))
    return path.route.method.lower() + "".join(word.title() for word in words)


def _describe_need(need: Need) -> str:
    if need.role is None:
        return "No credential is needed."
    text = f"Needs the role `{need.role.value}`, or the {password_role(need.role).value} password."
    if need.bounded is Bounded.REFUSED:
        text += " A key that is restricted to a part of the feed is refused."
    return text


def _security(role: Role) -> list[dict[str, list[str]]]:
    """Return the credentials for *role*; OpenAPI 3.1 lists the roles that each one needs."""
    roles = [role.value]
    return [{"password": [password_role(role).value]}, {"key": roles}, {"token": roles}]


def _described(schema: Schema) -> dict[str, Any]:
    """Return the keys of a parameter that has *schema*, which `PARAMETERS` describes."""
    own = {key: value for key, value in schema.items() if key in _OF_PARAMETERS}
    return {**own, "schema": {key: value for key, value in schema.items() if key not in own}}


def _parameter_key(name: str) -> str:
    return name.replace(":", ".")


def _parameter(name: str) -> dict[str, Any]:
    shown = name.partition(":")[0]
    place = "header" if shown[0].isupper() or shown == "traceparent" else "query"
    return {"name": shown, "in": place, **_described(PARAMETERS[name])}


def _declared_parameters() -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the declared parameters by the name of their component, and these names by route.

    Parameters of the same name that differ have the last part of the path in that name.
    """
    by_route = {
        key: {name: _of_query(name, schema) for name, schema in each.query.items()}
        for kind in DECLARED
        for key, each in kind.declared.items()
    }
    several = {name.partition(":")[0] for name in PARAMETERS if ":" in name}
    first: dict[str, Any] = {}
    for parameters in by_route.values():
        for name, parameter in parameters.items():
            if first.setdefault(name, parameter) != parameter:
                several.add(name)
    found: dict[str, Any] = {}
    names: dict[str, list[str]] = {}
    for key, parameters in by_route.items():
        place = _IN_PATH.sub("", key).rstrip("/").rpartition("/")[2]
        keys = {name: f"{name}.{place}" if name in several else name for name in parameters}
        found |= {keys[name]: parameter for name, parameter in parameters.items()}
        names[key] = [*keys.values()]
    return found, names


def _of_query(name: str, schema: Schema) -> dict[str, Any]:
    required = {"required": True} if schema.get("required") is True else {}
    known = {key: value for key, value in schema.items() if key != "required"}
    return {"name": name, "in": "query", **required, **_described(known)}


def _media(schema: Schema) -> dict[str, Any]:
    """Return the content with *schema* and the first example, also of a referenced schema."""
    named = schema["anyOf"][0] if "anyOf" in schema else schema
    known = SCHEMAS[named["$ref"].rpartition("/")[2]] if "$ref" in named else named
    examples = known.get("examples")
    return {"schema": schema, **({"example": examples[0]} if examples else {})}


def _successes(doc: Doc, *, is_root: bool) -> dict[str, Any]:
    """Return the responses that are not errors.

    A GET of the root returns the console to a browser (9.8), and links to a client of changeagent.
    """
    content = {kind: {"schema": schema} for kind, schema in doc.answers}
    if doc.answer and not content:
        content = {doc.answer: {"schema": _PLAIN}}
    if is_root and doc.sends:
        content |= {JSON: {"schema": ref("Links")}, HTML: {"schema": _PLAIN}}
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in doc.sends}
    found: dict[str, Any] = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            **({"headers": headers} if headers else {}),
            **({"content": content} if content and status not in doc.empty else {}),
        }
        for status in sorted((doc.status, *doc.more))
    }
    if is_root and doc.sends:
        found["307"] = {"description": "the console, for browsers"}
    for status, kind, schema in doc.others:
        description = HTTPStatus(status).phrase
        found[str(status)] = {"description": description, "content": {kind: {"schema": schema}}}
    return found


def _error_content(codes: list[str], kind: str) -> dict[str, Any]:
    """Return the content of an error; only bodies of the schema `Error` contain the code."""
    examples = {code: {"$ref": f"#/components/examples/{code}"} for code in codes}
    shown = {"examples": examples} if kind == "Error" else {}
    return {"content": {JSON: {"schema": ref(kind), **shown}}}


def _error_example(code: str, meaning: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": meaning, "field": "", "value": "", "rule": meaning}}
