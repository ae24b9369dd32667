"""Access logs of an API: one line of JSON a request, without bodies, cursors or addresses."""

from __future__ import annotations

import json
from collections.abc import Sequence

import jsii
from aws_cdk import aws_apigateway as formats
from aws_cdk import aws_apigatewayv2 as apigateway
from constructs import Construct

from infra.parts.log_group import log_group
from infra.settings import Stage

# API Gateway's names of what it knows of any request.
_ALWAYS = ("requestId", "requestTime", "routeKey", "status", "integrationErrorMessage")
HTTP_FIELDS = (*_ALWAYS, "httpMethod", "path", "responseLatency", "responseLength")
SOCKET_FIELDS = (*_ALWAYS, "eventType", "connectionId", "integrationLatency")


@jsii.implements(apigateway.IAccessLogSettings)
class AccessLog:
    """Writes *fields* to a log group of the stage."""

    def __init__(
        self, scope: Construct, name: str, stage: Stage, *, path: str, fields: Sequence[str]
    ) -> None:
        self._destination = apigateway.LogGroupLogDestination(
            log_group(scope, name, stage, path=path)
        )
        line = json.dumps({field: f"$context.{field}" for field in fields})
        self._format = formats.AccessLogFormat.custom(line)

    @property
    def destination(self) -> apigateway.IAccessLogDestination:
        return self._destination

    @property
    def format(self) -> formats.AccessLogFormat:
        return self._format
