"""Policies of roles from a synthesised template, and the requests that they allow."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.awsrequest import AWSRequest

from tests.infra.templates import Template

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


SOCKETS = "sockets"  # in place of the id of the WebSocket API: no address here contains it
_SOCKET_STAGE = "live"
_INVOCATION = re.compile(r"/2015-03-31/functions/([^/]+)/invocations")
_CONNECTION = re.compile(r".*/@connections/(.+)")
_KEY = re.compile(r"<Key>([^<]*)</Key>")  # in the body of DeleteObjects
_S3_OF_OBJECTS = {
    "GET": "GetObject",
    "HEAD": "GetObject",
    "PUT": "PutObject",
    "DELETE": "DeleteObject",
}


def calls_of(service: str, region: str, account: str, request: AWSRequest) -> list[Call]:
    """What *request* needs.

    An unknown service or kind of request becomes an action that no policy allows.
    """
    read = _SERVICES.get(service)
    place = f"{service}:{region}:{account}"
    if read is None:
        return [Call(f"{service}:?", str(request.url))]
    return list(read(place, request))


def _dynamodb(place: str, request: AWSRequest) -> Iterator[Call]:
    action = str(request.headers["X-Amz-Target"]).partition(".")[2]
    sent: dict[str, Any] = json.loads(request.data or b"{}")
    if action.startswith("Transact"):
        for part in sent["TransactItems"]:
            for kind, each in part.items():
                name = "ConditionCheckItem" if kind == "ConditionCheck" else f"{kind}Item"
                yield Call(f"dynamodb:{name}", _table(place, each["TableName"]))
        return
    for table in sent.get("RequestItems", [sent.get("TableName", "")]):
        yield Call(f"dynamodb:{action}", _table(place, table, sent.get("IndexName")))


def _table(place: str, name: str, index: str | None = None) -> str:
    """Tables of other accounts are named by their ARN."""
    arn = name if name.startswith("arn:") else f"arn:aws:{place}:table/{name}"
    return f"{arn}/index/{index}" if index else arn


def _lambda(place: str, request: AWSRequest) -> Iterator[Call]:
    """Yield the call of Lambda; the qualifier of a function is part of the resource."""
    url = urlsplit(str(request.url))
    found = _INVOCATION.fullmatch(url.path)
    action = "lambda:InvokeFunction" if found and request.method == "POST" else "lambda:?"
    name = ":".join([unquote(found[1]) if found else "", *parse_qs(url.query).get("Qualifier", [])])
    yield Call(action, f"arn:aws:{place}:function:{name}")


def _execute_api(place: str, request: AWSRequest) -> Iterator[Call]:
    found = _CONNECTION.fullmatch(urlsplit(str(request.url)).path)
    action = "execute-api:ManageConnections" if found else "execute-api:?"
    path = f"{SOCKETS}/{_SOCKET_STAGE}/{request.method}/@connections/{found[1] if found else ''}"
    yield Call(action, f"arn:aws:{place}:{path}")


def _s3(place: str, request: AWSRequest) -> Iterator[Call]:
    """Yield the call of S3, by path (`host/bucket/key`) or by host (`bucket.s3...`)."""
    url = urlsplit(str(request.url))
    host, at, _ = (url.hostname or "").partition(".s3.")
    path = unquote(url.path).lstrip("/")
    bucket, _, key = (host, "", path) if at else path.partition("/")
    method = str(request.method)
    if key:
        action = _S3_OF_OBJECTS.get(method, f"?{method}")
        yield Call(f"s3:{action}", f"arn:aws:s3:::{bucket}/{key}")
        return
    given = {k: [str(v)] for k, v in dict(request.params or {}).items()}
    query = parse_qs(url.query, keep_blank_values=True) | given
    if method == "POST" and "delete" in query:
        for each in _KEY.findall(bytes(request.data or b"").decode()):
            yield Call("s3:DeleteObject", f"arn:aws:s3:::{bucket}/{each}")
        return
    listed = method == "GET" and "list-type" in query
    context = {"s3:prefix": tuple(query.get("prefix", [""]))}
    yield Call("s3:ListBucket" if listed else f"s3:?{method}", f"arn:aws:s3:::{bucket}", context)


_SERVICES: dict[str, Callable[[str, AWSRequest], Iterator[Call]]] = {
    "dynamodb": _dynamodb,
    "lambda": _lambda,
    "execute-api": _execute_api,
    "s3": _s3,
}


_ARNS = {
    "AWS::DynamoDB::Table": "arn:aws:dynamodb:{place}:table/{name}",
    "AWS::S3::Bucket": "arn:aws:s3:::{name}",
    "AWS::KMS::Key": "arn:aws:kms:{place}:key/{name}",
    "AWS::Logs::LogGroup": "arn:aws:logs:{place}:log-group:{name}:*",
}
_KEY_IS_USED = {  # the use of a table's or bucket's key by a service, in the caller's name
    "dynamodb": "kms:Decrypt",
    "s3:GetObject": "kms:Decrypt",
    "s3:PutObject": "kms:GenerateDataKey",
}


@dataclass(frozen=True)
class Place:
    """The environment of functions in a test. *names* are those of tables and buckets by the
    beginning of their logical ids, *prefix* is that of functions.
    """

    region: str
    account: str
    names: Mapping[str, str]
    prefix: str

    def __str__(self) -> str:
        return f"{self.region}:{self.account}"


@dataclass(frozen=True)
class Roles:
    """The roles of one stage's functions, in one place."""

    template: Template
    place: Place
    _keys: dict[str, str] = field(default_factory=dict, init=False)
    _policies: dict[str, list[Statement]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for logical, table in self.template.resources("AWS::DynamoDB::Table").items():
            key = table.get("SSESpecification", {}).get("KMSMasterKeyId")
            if key:
                self._keys[self._arn(logical)] = self.resolved(key)
        for logical, bucket in self.template.resources("AWS::S3::Bucket").items():
            for rule in bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]:
                key = rule["ServerSideEncryptionByDefault"].get("KMSMasterKeyID")
                if key:
                    self._keys[self._arn(logical)] = self.resolved(key)

    def statements(self, function: str) -> list[Statement]:
        """Return the statements of the role of *function*, with ARNs in place of references."""
        if function not in self._policies:
            own = self.template.statements(self.template.role_of(function))
            self._policies[function] = [self.resolved(each) for each in own]
        return self._policies[function]

    def refusals(self, function: str, call: Call) -> list[Call]:
        """Return *call* and AWS's own calls for it, without those that the role permits."""
        policy = self.statements(function)
        return [each for each in (call, *self.implied(call)) if not allowed(policy, each)]

    def implied(self, call: Call) -> list[Call]:
        """Return the use of the key that a table or a bucket is encrypted with."""
        service = call.action.partition(":")[0]
        action = _KEY_IS_USED.get(call.action) or _KEY_IS_USED.get(service)
        whole = call.resource.partition("/index/")[0] if service == "dynamodb" else ""
        key = self._keys.get(whole or call.resource.partition("/")[0])
        if action is None or key is None:
            return []
        through = {"kms:viaservice": (f"{service}.{self.place.region}.amazonaws.com",)}
        return [Call(action, key, through)]

    def resolved(self, value: Any) -> Any:
        """*value* without references."""
        match value:
            case {"Ref": name}:
                return self._pseudo(name) or self._name(name)
            case {"Fn::GetAtt": [name, "Arn"]}:
                return self._arn(name)
            case {"Fn::GetAtt": [name, attribute]}:
                return f"{self._arn(name)}/{attribute}"
            case {"Fn::Join": [separator, parts]}:
                return str(separator).join(self.resolved(part) for part in parts)
            case dict():
                return {name: self.resolved(each) for name, each in value.items()}
            case list():
                return [self.resolved(each) for each in value]
            case str():
                return value.replace(f"tidings-{self.template.stage.name}-", self.place.prefix)
            case _:
                return value

    def _pseudo(self, name: str) -> str:
        return {
            "AWS::Partition": "aws",
            "AWS::Region": self.place.region,
            "AWS::AccountId": self.place.account,
            "AWS::URLSuffix": "amazonaws.com",
        }.get(name, "")

    def _name(self, logical: str) -> str:
        if self.template.body["Resources"][logical]["Type"] == "AWS::ApiGatewayV2::Api":
            return SOCKETS
        for beginning, name in self.place.names.items():
            if logical.startswith(beginning):
                return name
        return logical

    def _arn(self, logical: str) -> str:
        kind = self.template.body["Resources"][logical]["Type"]
        form = _ARNS.get(kind, "arn:aws:{kind}:{place}:{name}")
        return form.format(place=self.place, name=self._name(logical), kind=kind)


def privileges(statement: Statement) -> set[tuple[str, str]]:
    """Return the pairs of an action and a resource that a statement names."""
    return {
        (action, resource)
        for action in as_list(statement["Action"])
        for resource in as_list(statement["Resource"])
    }
