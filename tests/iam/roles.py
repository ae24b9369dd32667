"""Policies of roles from a synthesised template, with the names that things have here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.iam.policy import Call, Statement, allowed, as_list
from tests.iam.requests import SOCKETS
from tests.infra.templates import Template

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
