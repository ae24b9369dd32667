"""Serve `GET /openapi.json`, which describes the routes in OpenAPI 3.1 for client generators.

The document is generated from the table of routes, the classes of errors and the data below, so it
has exactly the routes and codes that exist. docs/PROTOCOL.md has the rules.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from tidings.core import errors, limits
from tidings.core.auth import origins
from tidings.core.auth.guard import Bounded, password_role
from tidings.core.model.envelopes import FORMATS
from tidings.core.model.feeds import NAME
from tidings.core.version import VERSION
from tidings.http.answers import unavailable_body
from tidings.http.json_schema import declared_schemas, name_of, object_schema, schema_of
from tidings.http.request import LINKS, InvalidEncoding, Overloaded, UnsupportedEncoding
from tidings.http.routes import DECLARED
from tidings.http.schemas import EVENTS, ChangesError, Error
from tidings.http.wire import (
    EXAMPLE_CURSOR,
    EXAMPLE_FEED,
    JSON,
    PLAIN,
    Contents,
    Declared,
    Example,
    Fields,
    Schema,
    json_of,
    ref,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidings.core.auth.guard import Need


class Links(Fields):
    """The links at the root, for clients of changeagent."""

    __annotations__ = {
        name: Annotated[str, Example(f"http://127.0.0.1:8042/{name}")] for name in LINKS
    }


def _declared() -> Iterator[Any]:
    """Yield the types of bodies and responses."""
    yield from (Error, ChangesError, Links, *EVENTS.values())
    for kind in DECLARED:
        for each in kind.declared.values():
            yield from (each.hint("body"), each.hint("return"), each.error)
            yield from (hint for _, hint in (*each.body, *(each.answers or ())))


SCHEMAS = declared_schemas(_declared())
HTML = "text/html"
# The tags, by chapter of docs/PROTOCOL.md. A longer number is a rule with a tag of its own.
TAGS = {
    "4": "Operations",
    "7": "Operations",
    "9": "Status",
    "6": "Status",
    "10": "Keys",
    "12": "Changes",
    "13": "Listeners",
    "13.9": "State",
    "14": "Consumers",
    "16": "Chained feeds",
    "17": "Keys",
    "18": "Corrections",
    "19": "Webhooks",
    "20": "State",
    "22": "Erasures",
    "23": "Feeds",
}
TAG_SUMMARIES = {
    "Operations": "post operations, follow a feed",
    "Status": "the status of a feed and of its host, descriptions of its formats",
    "State": "the latest operation of each object, and checksums of them",
    "Consumers": "named consumers, whose positions the feed stores",
    "Webhooks": "endpoints that receive events",
    "Keys": "credentials of a feed",
    "Feeds": "create, change and delete feeds",
    "Erasures": "remove the data of an object",
    "Corrections": "make a feed agree with other data",
    "Chained feeds": "copies of another feed",
    "Changes": "the API of changeagent",
    "Listeners": "the API of Triton's change feed",
}
# The headers of requests, by name. Their schemas have the description of the parameter.
HEADERS: dict[str, Schema] = {
    "Last-Event-ID": {
        **PLAIN,
        "description": "the cursor (5): the id of the last event handled, `0` or `now`",
        "examples": [EXAMPLE_CURSOR, "0", "now"],
    },
    "If-None-Match": {
        **PLAIN,
        "description": "`*` changes nothing that exists; other values have no effect",
        "examples": ["*"],
    },
    "Idempotency-Key": {
        "type": "string",
        "pattern": f"^[ -~]{{1,{limits.IDEMPOTENCY_KEY_CHARS_MAX}}}$",
        "description": "append a repeated request once, for 24 hours (4.5)",
        "examples": ["3f1c9c2e-6a3f-4f0e-9d0b-2f6f6a1f7c55"],
    },
    "traceparent": {
        **PLAIN,
        "description": "W3C Trace Context (4.10)",
        "examples": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
    },
    "Prefer": {
        **PLAIN,
        "description": "`return=representation` returns the ids; other values have no effect",
        "examples": ["return=representation"],
    },
}
# The parameters in paths, by name.
PATH_PARAMETERS: dict[str, Schema] = {
    "feed": {"type": "string", "pattern": f"^{NAME.pattern}$", "description": "the name of a feed"},
    "name": {
        "type": "string",
        "pattern": f"^{NAME.pattern}$",
        "description": "the name of a consumer or webhook",
        "examples": ["search"],
    },
    "id": {**PLAIN, "minLength": 1, "description": "the id of a key, an erasure, a change"},
    "format": {"type": "string", "enum": [*FORMATS], "description": "the format of events (6.10)"},
    "part": {"type": "string", "enum": ["id", "stack", "raft", "memory", "cpu"]},
    "part:raft": {"type": "string", "enum": ["state", "leader"]},
}
_OF_PARAMETERS = ("description", "allowEmptyValue")
_IN_PATH = re.compile(r"\{(\w+)\}")
_OF_A_FEED = "/feeds/{feed}"
# The headers of responses.
_SENT: dict[str, Schema] = {
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


class DescribedPath(NamedTuple):
    """One path of a declared route."""

    route: Declared
    path: str

    @property
    def key(self) -> str:
        return f"{self.route.method} {self.path}"


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


def described_paths() -> Iterator[DescribedPath]:
    """Yield the paths of all routes; those with and without a feed have a method each."""
    for kind in DECLARED:
        for each in dict.fromkeys(kind.declared.values()):
            for path in each.paths:
                yield DescribedPath(each, path)


class _Builder:
    """The parts of a document; it collects the components that operations refer to."""

    def __init__(self, feeds: list[str]) -> None:
        self._feeds = feeds
        self._responses: dict[str, Any] = {}
        self._codes: dict[str, str] = {}
        self._parameters, self._parameter_keys = _query_parameters()

    def operation(self, at: DescribedPath) -> dict[str, Any]:
        route, described = at.route, _describe_need(at.route.need)
        body, is_optional = _body(route)
        names = (*self._parameter_keys[at.key], *(_key(name) for name in route.headers))
        security = []
        if role := route.need.role:  # OpenAPI 3.1 lists the roles that each credential needs
            security = [{"password": [password_role(role).value]}]
            security += [{"key": [role.value]}, {"token": [role.value]}]
        operation: dict[str, Any] = {
            "operationId": _operation_id(at),
            "tags": [tag_of(route.section)],
            "summary": _summary(route),
            "description": f"{described} See docs/PROTOCOL.md, {route.section}.",
            "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in names],
            "responses": {**_successes(route, is_root=at.path == "/"), **self._errors(at)},
            "security": security,
        }
        if body:
            content = {kind: _media(schema_of(hint)) for kind, hint in body}
            operation["requestBody"] = {"required": not is_optional, "content": content}
        return operation

    def components(self) -> dict[str, Any]:
        return {
            "schemas": SCHEMAS,
            "responses": dict(sorted(self._responses.items())),
            "parameters": {
                **{f"path.{_key(name)}": self._in_path(name) for name in PATH_PARAMETERS},
                **{name: _parameter(name, "header", HEADERS[name]) for name in HEADERS},
                **self._parameters,
            },
            "examples": {
                code: {
                    "summary": meaning,
                    "value": {"error": unavailable_body(meaning, code=code)},
                }
                for code, meaning in sorted(self._codes.items())
            },
            "headers": {name: {**header, "schema": PLAIN} for name, header in _SENT.items()},
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

    def _in_path(self, name: str) -> dict[str, Any]:
        """Return the parameter *name* of paths. The examples of a feed are feeds that exist."""
        schema = {**PATH_PARAMETERS[name]}
        if name == "feed":
            schema["examples"] = self._feeds[: limits.FEEDS_NAMED] or [EXAMPLE_FEED]
        shown = name.partition(":")[0]
        return {"name": shown, "in": "path", "required": True, **_described(schema)}

    def _errors(self, at: DescribedPath) -> dict[str, Any]:
        route, by_status = at.route, dict[int, list[str]]()
        meanings: dict[str, str] = {}
        for code, status, meaning in rejections(at):
            meanings[code] = meaning
            by_status.setdefault(status, []).append(code)
        hint = route.error or (ChangesError if route.section.startswith("12") else Error)
        kind = name_of(hint)
        if kind == "Error":
            self._codes.update(meanings)
        known = (route.status, *route.more, *(status for status, _, _ in route.others))
        return {
            str(status): self._error(status, sorted(codes), kind, is_empty=status in route.empty)
            for status, codes in sorted(by_status.items())
            if status not in known
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
            content: dict[str, Any] = {"schema": ref(kind)}
            if kind == "Error":  # others have no code
                examples = {code: {"$ref": f"#/components/examples/{code}"} for code in codes}
                content["examples"] = examples
            self._responses[key] = {
                "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
                **({} if is_empty else {"content": {JSON: content}}),
                **({"headers": {header: reference}} if header else {}),
            }
        return {"$ref": f"#/components/responses/{key}"}


def rejections(at: DescribedPath) -> Iterator[tuple[str, int, str]]:
    """Yield code, status and meaning of each error with which a route may be answered, once.

    The meaning is the first sentence of the class of the error.
    """
    route = at.route
    found: list[type[errors.Rejected]] = [*_OF_EVERY_ROUTE, *route.errors]
    if route.need.role is not None:
        found += _OF_CREDENTIAL
    if at.path not in _OF_HOST:
        found += _OF_FEED
    if route.method not in origins.READING:
        found += (origins.ForeignOrigin, errors.WrongContentType)
    if _body(route)[0]:
        found += _OF_BODY
    for error in dict.fromkeys(found):
        first, _, _ = " ".join((error.__doc__ or "").split()).partition(". ")
        yield error.code, error.status, first.rstrip(".") + "."
    for code, meaning in _UNAVAILABLE.items():
        yield code, 503, meaning


def _operation_id(at: DescribedPath) -> str:
    """Return the name of a method in generated clients.

    The paths without a feed, which mean the feed `main`, have a name of their own.
    """
    first, *others = at.route.name.split("_")
    name = first + "".join(map(str.title, others))
    if at.path == "/":
        return f"{name}Root"
    return f"{name}Main" if _OF_A_FEED + at.path in at.route.paths else name


def _summary(route: Declared) -> str:
    if route.summary:
        return route.summary
    text = route.function.__doc__.partition("\n")[0].rstrip(".").removeprefix("Return ")
    return f"{text[0].lower()}{text[1:]}"


def _body(route: Declared) -> tuple[Contents, bool]:
    """Return the content of requests, and True if it may be missing."""
    kind = route.parameters.get("body")
    if kind is None:
        return route.body, route.is_optional
    return json_of(kind), "required" not in object_schema(kind)


def tag_of(section: str) -> str:
    return TAGS.get(section) or TAGS[section.partition(".")[0]]


def _describe_need(need: Need) -> str:
    if need.role is None:
        return "No credential is needed."
    text = f"Needs the role `{need.role.value}`, or the {password_role(need.role).value} password."
    if need.bounded is Bounded.REFUSED:
        text += " A key that is restricted to a part of the feed is refused."
    return text


def _described(schema: Schema) -> dict[str, Any]:
    """Return the keys of a parameter that has *schema* with its description."""
    own = {key: value for key, value in schema.items() if key in _OF_PARAMETERS}
    return {**own, "schema": {key: value for key, value in schema.items() if key not in own}}


def _key(name: str) -> str:
    """Return the name of a component without a colon, which references cannot contain."""
    return name.replace(":", ".")


def _parameter(name: str, location: str, schema: Schema) -> dict[str, Any]:
    required = {"required": True} if schema.get("required") is True else {}
    known = {key: value for key, value in schema.items() if key != "required"}
    return {"name": name, "in": location, **required, **_described(known)}


def _query(route: Declared) -> dict[str, Schema]:
    """Return the schemas of parameters by name; those of a required one say so."""
    if kind := route.parameters.get("query"):
        schema = object_schema(kind)
        required = {name: {"required": True} for name in schema.get("required", ())}
        return {k: {**v, **required.get(k, {})} for k, v in schema["properties"].items()}
    return dict(route.query or {})


def _query_parameters() -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the parameters of queries by the name of their component, and the names by route.

    Parameters of the same name that differ have the last part of the path in that name. The names
    of a route begin with those of its path.
    """
    by_route = {
        at: {name: _parameter(name, "query", each) for name, each in _query(at.route).items()}
        for at in described_paths()
    }
    first: dict[str, Any] = {}
    several = {
        name
        for parameters in by_route.values()
        for name, parameter in parameters.items()
        if first.setdefault(name, parameter) != parameter
    }
    found: dict[str, Any] = {}
    names: dict[str, list[str]] = {}
    for at, parameters in by_route.items():
        place = _IN_PATH.sub("", at.path).rstrip("/").rpartition("/")[2]
        keys = {name: f"{name}.{place}" if name in several else name for name in parameters}
        found |= {keys[name]: parameter for name, parameter in parameters.items()}
        of_path = (
            "part:raft" if "/raft/" in at.path else name for name in _IN_PATH.findall(at.path)
        )
        names[at.key] = [*(f"path.{_key(name)}" for name in of_path), *keys.values()]
    return found, names


def _media(schema: Schema) -> dict[str, Any]:
    """Return the content with *schema* and the first example, also of a referenced schema."""
    named = schema["anyOf"][0] if "anyOf" in schema else schema
    known = SCHEMAS[named["$ref"].rpartition("/")[2]] if "$ref" in named else named
    examples = known.get("examples")
    return {"schema": schema, **({"example": examples[0]} if examples else {})}


def _successes(route: Declared, *, is_root: bool) -> dict[str, Any]:
    """Return the responses that are not errors.

    A GET of the root returns the console to a browser (9.8), and links to a client of changeagent.
    """
    answers = json_of(route.hint("return")) if route.answers is None else route.answers
    content = {kind: {"schema": schema_of(hint)} for kind, hint in answers}
    if is_root and route.sends:
        content |= {JSON: {"schema": schema_of(Links)}, HTML: {"schema": PLAIN}}
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in route.sends}
    found: dict[str, Any] = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            **({"headers": headers} if headers else {}),
            **({"content": content} if content and status not in route.empty else {}),
        }
        for status in sorted((route.status, *route.more))
    }
    if is_root and route.sends:
        found["307"] = {"description": "the console, for browsers"}
    for status, kind, hint in route.others:
        content = {kind: {"schema": schema_of(hint)}}
        found[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return found
