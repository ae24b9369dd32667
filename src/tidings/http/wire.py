"""Declarations of routes, and of the fields of their parameters, bodies and responses.

A route is a method of a subclass of `Routes`, with a decorator such as `@get`. It is declared once:
the table of routes, the check of the credential, the decoding of a request, its errors and the
description in `/openapi.json` come from the declaration (docs/design/RECIPES.md).

Parameters, bodies and responses are subclasses of `Fields`. They look like dataclasses but are not,
because creating 60 dataclasses would take a function 50 ms at its start. The type of a field
determines its schema (`json_schema`). A field of a request is parsed by the `Kind` in its type,
which also has the rule for errors. Fields are checked in the order in which they are declared.

The type of a field may be `Annotated` with a `Kind`, an `Example` and a text, its description. A
field of a request may be missing if it has a default, often None; one of a response if its default
is `UNSET`. A response with `| None` may be null.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Callable, Mapping, Sequence  # the types of declared fields
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    dataclass_transform,
)

from tidings.core.auth.guard import ADMIN, ALL, KEY_PREFIX, Need
from tidings.core.errors import Rejected, parse_integer
from tidings.core.model.feeds import HOST
from tidings.core.model.json_body import object_from
from tidings.core.model.operations import SURROGATE
from tidings.http.answers import json_answer
from tidings.http.request import Answer, UnknownPath

if TYPE_CHECKING:
    from collections.abc import KeysView

    from tidings.core.auth.guard import Allowed, Credential, Guard
    from tidings.core.model.feeds import FeedNames
    from tidings.http.request import Request

Schema = dict[str, Any]
Contents = tuple[tuple[str, Any], ...]  # content types, each with a type or a schema
JSON = "application/json"
DEFAULT_PATH = "$default"
LOCAL = ""  # in place of a method
_ACTION = "{action}"

EXAMPLE_FEED = "orders"
EXAMPLE_CURSOR = "6927c1d5000000002a000000"
EXAMPLE_END = "6927c1d5000000002a7fffff"
EXAMPLE_TIME = "2026-11-27T18:59:33.363Z"
EXAMPLE_MS = 1_795_805_973_363
EXAMPLE_OBJECT = {
    "type": "order",
    "id": "o-1024",
    "parents": ["customer/ann"],
    "timestamp": EXAMPLE_TIME,
    "data": {"total": 1999},
}


EVENT_NAMES = ("insert", "update", "delete", "leave", "erase", "reset", "live")


class Unset(Enum):
    """The value of a field that a response does not have."""

    UNSET = "unset"


UNSET: Literal[Unset.UNSET] = Unset.UNSET


def _as_sent(value: Any, field: str) -> Any:
    return value


@dataclass(frozen=True, eq=False)  # unions hash their members
class Kind:
    """The form of a value.

    *parse* is called with a value as it was sent, and the name of its field. It returns the value
    for the program. It raises ValueError with the rule, or an error of its own that names the
    field. If *shown* is False, errors do not contain the value, which may be a secret.
    """

    schema: Schema
    parse: Callable[[Any, str], Any] = _as_sent
    shown: bool = True


@dataclass(frozen=True, eq=False)
class Example:
    """An example of a value, in the type of a field."""

    value: Any


@dataclass(frozen=True, eq=False)
class Name:
    """The name of the schema of a type that is not a class of fields."""

    value: str


def integer(least: int, most: int) -> Kind:
    """Return the kind of a number in a query, in decimal digits."""

    def parse(text: str, field: str) -> int:
        return parse_integer(text, least, most)

    return Kind({"type": "integer", "minimum": least, "maximum": most}, parse)


def _parse_switch(text: str, field: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def one_of(*values: str) -> Kind:
    return Kind({"type": "string", "enum": [*values]})


def const(value: str) -> Kind:
    return Kind({"type": "string", "const": value})


def parse_text(value: Any, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a non-empty string")
    return value


def most(count: int) -> Kind:
    """Return the kind of a list with at most *count* members."""
    return Kind({"maxItems": count})


def text_of(most: int) -> Kind:
    """Return the kind of a text with 1 to *most* characters; only the schema states *most*."""
    return Kind({"type": "string", "minLength": 1, "maxLength": most}, parse_text)


PLAIN: Schema = {"type": "string"}
TEXT: Schema = {"type": "string", "minLength": 1}
INTEGER: Schema = {"type": "integer", "format": "int64", "minimum": 0}  # 64 bits, for typed clients
ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{24}$", "examples": [EXAMPLE_CURSOR]}
# The types of fields.
Text = Annotated[str, Kind(TEXT)]
Switch = Annotated[bool, Kind({"type": "string", "enum": ["true", "false"]}, _parse_switch)]
EntryId = Annotated[str, Kind(ID)]
Time = Annotated[str, Kind({"type": "string", "format": "date-time", "examples": [EXAMPLE_TIME]})]
# From the year 1.
Ms = Annotated[
    int,
    Kind({"type": "integer", "format": "int64", "minimum": -62135596800000}),
    Example(EXAMPLE_MS),
]


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Fields:
    """The base class of parameters, bodies and responses.

    A subclass has the schema *name*, by default its own name; "" if the schema has none, and is
    repeated where it is used. *example* replaces the example that is made from the fields. With
    *is_partial*, it may lack any of the fields that it inherits. *keywords* are others of its
    schema. In a request, the fields *first* are checked first, and with *is_open*, unknown fields
    are ignored.
    """

    schema_name: ClassVar[str]
    known: ClassVar[dict[str, Field]]
    example: ClassVar[Any]
    is_partial: ClassVar[bool]
    first: ClassVar[Sequence[str]]
    is_open: ClassVar[bool]
    keywords: ClassVar[Schema]

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        example: Any = None,
        is_partial: bool = False,
        first: Sequence[str] = (),
        is_open: bool = False,
        keywords: Mapping[str, Any] = types.MappingProxyType({}),
    ) -> None:
        cls.schema_name = cls.__name__ if name is None else name
        cls.example, cls.is_partial, cls.first = example, is_partial, first
        cls.is_open, cls.keywords = is_open, {**keywords}
        if is_partial:
            for inherited in _names(cls) - cls.__annotations__.keys():
                setattr(cls, inherited, UNSET)

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)  # the others are attributes of the class, their defaults

    @classmethod
    def copy_of(cls, source: object, **others: Any) -> Self:
        """Return an object with the attributes of *source*, and the fields *others*.

        A field that neither of them has keeps its default.
        """
        names = (each.attribute for each in fields_of(cls).values())
        copied = {name: getattr(source, name) for name in names if hasattr(source, name)}
        return cls(**copied | others)

    def document(self) -> dict[str, Any]:
        """Return the fields that are set, as a JSON value."""
        named = fields_of(type(self)).items()
        values = ((name, getattr(self, each.attribute)) for name, each in named)
        return {name: document_of(value) for name, value in values if value is not UNSET}


class Given(Fields):
    """The base class of parameters and bodies. A field that is None was not given.

    `sent` has the fields as they were sent, by name.
    """

    sent: ClassVar[Mapping[str, Any]]

    @classmethod
    def parse(cls, given: Mapping[str, Any], wrong: type[Rejected], word: str) -> Self:
        """Return the fields in *given*; *word* is "fields" or "parameters" for errors.

        Raises:
            *wrong*: a field is unknown, is missing, or breaks its rule.
        """
        known = fields_of(cls)
        for name in () if cls.is_open else given:
            if name not in known:
                # Omit the value, which may be a secret.
                raise wrong(f"is not known here; {_known(known, word)}", field=name)
        values = {}
        for name in dict.fromkeys((*cls.first, *known)) if cls.first else known:
            field, value = known[name], given.get(name)
            if value is None and name not in given and not field.is_required:
                continue
            try:
                values[field.attribute] = field.kind.parse(value, name) if field.kind else value
                _check_storable(value)
            except ValueError as error:
                shown = value if field.kind is None or field.kind.shown else None
                raise wrong(str(error), field=name, value=shown) from None
        return cls(**values, sent=given)


# Names that a field cannot have without a trailing underscore.
RESERVED = {*dir(Given), *Fields.__annotations__, *Given.__annotations__}


class Nothing(Given):
    """The parameters or the body of a route that has none, and refuses all."""


def _check_storable(value: Any) -> None:
    if isinstance(value, list | dict):
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and not value.isascii() and SURROGATE.search(value):
        raise ValueError("must not contain a lone surrogate")


def document_of(value: Any) -> Any:
    if isinstance(value, Fields):
        return value.document()
    if isinstance(value, list | tuple):
        return [document_of(each) for each in value]
    return value


def _known(names: Mapping[str, Any], word: str) -> str:
    if not names:
        return f"there are no {word}"
    if len(names) == 1:
        return f"the only {word.removesuffix('s')} is {next(iter(names))}"
    return f"the known {word} are {', '.join(names)}"


class Field(NamedTuple):
    """A field: its attribute, its type with the kind in it, and whether it must be given."""

    attribute: str
    hint: Any
    kind: Kind | None
    is_required: bool


def _names(of: type[Fields]) -> KeysView[str]:
    """Return the attributes that are fields; inherited ones are the last."""
    declaring = of.__mro__[: of.__mro__.index(Given if issubclass(of, Given) else Fields)]
    return {name: None for each in declaring for name in each.__annotations__}.keys()


def fields_of(of: type[Fields]) -> dict[str, Field]:
    """Return the fields of a class by name. The attribute `from_` has the name `from`."""
    if "known" not in vars(of):
        hints = typing.get_type_hints(of, include_extras=True)
        known = {}
        for name in _names(of):
            assert name not in RESERVED, name
            hint = _given(hints[name]) if issubclass(of, Given) else hints[name]
            field = Field(name, hint, kind_of(hint), not hasattr(of, name))
            known[name.rstrip("_")] = field
        of.known = known  # complete, because other threads may read it
    return of.known


def kind_of(hint: Any) -> Kind | None:
    return next((each for each in extras_of(hint) if isinstance(each, Kind)), None)


def extras_of(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())


def _given(hint: Any) -> Any:
    """Return the type of a field of a request without `None`, the value of a field not given."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return hint
    (kind,) = (each for each in typing.get_args(hint) if each is not types.NoneType)
    return kind


def ref(name: str) -> Schema:
    """Return a reference to the schema *name*."""
    return {"$ref": f"#/components/schemas/{name}"}


def json_of(hint: Any) -> Contents:
    """Return a body in JSON with the type *hint*."""
    return ((JSON, hint),)


class FeedObject(Fields, example=EXAMPLE_OBJECT):
    type: Text
    id: Text
    timestamp: Time | Unset = UNSET
    parents: list[Text] | Unset = UNSET
    tags: list[Text] | Unset = UNSET
    changed: list[Text] | Unset = UNSET
    data: Any = UNSET
    change: Annotated[bool, "true, or missing"] | Unset = UNSET
    erased: Annotated[bool, "true, or missing"] | Unset = UNSET
    ref: str | Unset = UNSET


# Routes.


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """One HTTP route.

    The *path* `$default` matches every request that no other route matches. *function* serves the
    route, and *need* is the required permission. A path ends with `{action}` if several declared
    routes share it.
    """

    method: str
    path: str
    function: str
    need: Need

    @property
    def key(self) -> str:
        """Return the route key in the syntax of API Gateway."""
        return self.path if self.is_default else f"{self.method} {self.path}"

    @property
    def is_default(self) -> bool:
        """Return True for the route of requests that no other route matches."""
        return self.path == DEFAULT_PATH


class Call:
    """A request about the feed with the key `feed`. `allowed` are the rights of the caller.

    `operator` names an operator with access to the stores and with all rights; "" over HTTP.
    """

    operator = ""

    def __init__(self, request: Request, feed_names: FeedNames, status: int) -> None:
        self.request, self.status = request, status
        self._feed_names = feed_names
        self.allowed: Allowed

    @cached_property
    def feed(self) -> str:
        return self._feed_names.key(self.request.feed)

    @property
    def name(self) -> str:
        """Return the name in the path, or "" if the path has none."""
        return self.request.parameters.get("name", "")

    @property
    def id(self) -> str:
        """Return the id in the path, or "" if the path has none."""
        return self.request.parameters.get("id", "")

    @cached_property
    def credential(self) -> Credential | None:
        return self.request.credential

    @property
    def caller(self) -> str:
        """Return the caller as reports name it, without a secret."""
        if self.operator:
            return self.operator
        if self.credential is None:
            return "anonymous"  # the feed is open
        if not self.allowed.principal:
            return "password"
        is_key = self.credential.secret.startswith(KEY_PREFIX)
        return f"{'key' if is_key else 'token'} {self.allowed.principal}"


class LocalCall(Call):
    """A call by an operator with access to the stores."""

    def __init__(self, request: Request, feed_names: FeedNames, operator: str) -> None:
        super().__init__(request, feed_names, 200)
        self.operator, self.allowed, self.credential = operator, ALL, None

    @cached_property
    def feed(self) -> str:
        return HOST if self.request.feed == HOST else self._feed_names.key(self.request.feed)


@dataclass(eq=False, kw_only=True)
class Declared:
    """A route at one or several *paths*; *section* refers to docs/PROTOCOL.md.

    *function* is a method of `Routes`. The types of its parameters `query` and `body` and of its
    result describe the request and the response. A route that is served elsewhere is an attribute
    of `Routes` without a function; *summary*, *query*, *body* and *answers* describe it. The latter
    two pair content types with types. With *is_optional*, the body may be missing.

    *headers* are names in `openapi.HEADERS`. A success has one of the statuses *status* and
    *more*. *empty* are the statuses without a body. *errors* are the errors in addition to those
    that `openapi.rejections` derives from the route, and *error* is the type of their body if it is
    not the usual one. *sends* are headers of a success. *others* are other statuses with their
    content types and types. *wrong* is the class of errors in fields if it is not `Routes.error`.

    With *is_action*, the end of the path is an action. A gateway has one route for all actions.
    """

    method: str
    paths: Sequence[str]
    need: Need
    section: str
    function: Any = None
    summary: str = ""
    query: Mapping[str, Schema] | None = None
    body: Contents = ()
    is_optional: bool = False
    answers: Contents | None = None
    headers: Sequence[str] = ()
    status: int = 200
    more: Sequence[int] = ()
    empty: Sequence[int] = ()
    errors: Sequence[type[Rejected]] = ()
    error: Any = None
    sends: Sequence[str] = ()
    others: Sequence[tuple[int, str, Schema]] = ()
    wrong: type[Rejected] | None = None
    is_action: bool = False

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def action(self) -> str:
        return self.paths[0].rpartition("/")[2] if self.is_action else ""

    def hint(self, name: str) -> Any:
        """Return the type of the parameter *name*, or of the result with the name `return`."""
        text = self.function.__annotations__.get(name) if self.function else None
        return eval(text, self.function.__globals__) if text else None

    @cached_property
    def parameters(self) -> dict[str, type[Given]]:
        """Return the types of the parameters `query` and `body`, if the method has them."""
        return {name: hint for name in ("query", "body") if (hint := self.hint(name))}

    def sent(self, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the *given* fields of the `query`, as texts, and of the `body`."""
        sent = {}
        for part, kind in self.parameters.items():
            values = {name: given[name] for name in fields_of(kind) if name in given}
            if part == "query":
                values = {name: "true" if v is True else str(v) for name, v in values.items()}
            sent[part] = values
        return sent

    @property
    def is_local(self) -> bool:
        """Return True for an operation that is not reachable over HTTP."""
        return self.method == LOCAL

    def http_routes(self, function: str) -> list[HttpRoute]:
        """Return the routes of *function* in a gateway."""
        if self.is_action:
            path = self.paths[0].removesuffix(self.action) + _ACTION
            return [HttpRoute(self.method, path, function, ADMIN)]
        return [HttpRoute(self.method, path, function, self.need) for path in self.paths]


class Routes:
    """The routes of one capability, as methods; an instance is their endpoint.

    *function* is the Lambda function that serves them, and *error* the class of errors in fields.
    An unknown action in a path is *unknown_action*, by default *error*.
    """

    declared: ClassVar[dict[str, Declared]]
    function: ClassVar[str]
    error: ClassVar[type[Rejected]]
    unknown_action: ClassVar[type[Rejected]]
    guard: Guard

    def __init_subclass__(
        cls,
        *,
        function: str,
        error: type[Rejected] = Rejected,
        unknown_action: type[Rejected] | None = None,
    ) -> None:
        cls.function, cls.error = function, error
        cls.unknown_action = unknown_action or error
        cls.declared = {}
        for each in vars(cls).values():
            found = getattr(each, "declared", each)
            if isinstance(found, Declared) and not found.is_local:
                cls.declared |= {f"{found.method} {path}": found for path in found.paths}

    def __call__(self, request: Request) -> Answer:
        """Answer a request.

        Raises:
            Rejected: access is denied, or a parameter or field breaks its rule.
            Unavailable: the request may have been done.
        """
        found = self.declared[self.find(request)]
        call = Call(request, self.guard.feed_names, found.status)
        call.allowed = self.admit(found, call)
        wrong, given = found.wrong or self.error, dict[str, Any]()
        for name, kind in found.parameters.items():
            if name == "query":
                given[name] = kind.parse(request.query, wrong, "parameters")
            else:
                sent = object_from(request.content(), wrong)
                given[name] = kind.parse(sent, wrong, "fields")
        result = found.function(self, call, **given)
        return (
            result if isinstance(result, Answer) else json_answer(call.status, document_of(result))
        )

    def perform(self, name: str, call: LocalCall, given: Mapping[str, Any]) -> Any:
        """Return the result of the operation *name* as a JSON value, without a check of rights.

        Raises:
            Rejected: no such operation is declared, or one of the *given* fields breaks its rule.
        """
        found = getattr(getattr(type(self), name, None), "declared", None)
        if not isinstance(found, Declared):
            raise UnknownPath("no such operation", field="operation", value=name)
        wrong, sent = found.wrong or self.error, found.sent(given)
        fields = {
            part: kind.parse(sent[part], wrong, "fields") for part, kind in found.parameters.items()
        }
        return document_of(found.function(self, call, **fields))

    @classmethod
    def http_routes(cls) -> list[HttpRoute]:
        """Return the routes of a gateway, in which those of actions are one."""
        declared = dict.fromkeys(cls.declared.values())
        return [*dict.fromkeys(r for each in declared for r in each.http_routes(cls.function))]

    def find(self, request: Request) -> str:
        """Return the key of the declared route for *request*.

        Raises:
            `unknown_action`: no route has the action in the path.
        """
        action = request.parameters.get("action", "")
        key = request.route.replace(_ACTION, action)
        if key not in self.declared:  # a client without a credential does not learn the actions
            feed = self.guard.feed_names.key(request.feed)
            ADMIN.admit(self.guard, feed, request.credential)
            known = ", ".join(each.action for each in self.declared.values() if each.action)
            raise self.unknown_action(f"must be one of {known}", field="action", value=action)
        return key

    def admit(self, found: Declared, call: Call) -> Allowed:
        """Return the rights of the caller; raise if they are not sufficient for the route."""
        return found.need.admit(self.guard, call.feed, call.credential)


Method = typing.TypeVar("Method", bound="Callable[..., Any]")


def route(
    method: str, paths: str | Sequence[str], need: Need, section: str, **more: Any
) -> Declared:
    """Declare a route that is served elsewhere; *more* are fields of `Declared`."""
    several = (paths,) if isinstance(paths, str) else paths
    return Declared(method=method, paths=several, need=need, section=section, **more)


def _decorator(http_method: str) -> Callable[..., Callable[[Method], Method]]:
    def declare(*where: Any, **more: Any) -> Callable[[Method], Method]:
        """Declare a route; the arguments are those of `route`."""

        def mark(method: Method) -> Method:
            declared = route(http_method, *where, function=method, **more)
            declared.name = method.__name__
            method.declared = declared  # type: ignore[attr-defined]
            return method

        return mark

    return declare


get, put, post, delete = map(_decorator, ("GET", "PUT", "POST", "DELETE"))


def local(path: str) -> Callable[[Method], Method]:
    """Declare an operation without a route, for commands with access to the stores.

    The names in *path* are its arguments.
    """
    return _decorator(LOCAL)(path, ADMIN, "")
