"""The HTTP API and the WebSocket API: the blueprint's routes, and access to connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.names import SOCKET_STAGE
from infra.parts.function import TidingsFunction
from infra.parts.logs import HTTP_FIELDS, SOCKET_FIELDS, AccessLog
from infra.settings import Domain, Stage
from tidings.aws.config import deployment
from tidings.core.auth.origins import EXPOSED
from tidings.http.answers import CORS_HEADERS, PREFLIGHT_AGE_S

# Each other log group needs a statement in the account's resource policy of 5,120 characters.
GATEWAY_LOGS = "/aws/vendedlogs/apigateway"


class FeedDomain(Construct):
    """
    A custom domain; `options` maps the name to a stage of an API.

    With a trust store, clients need a certificate signed by one of its authorities (mutual TLS).
    """

    def __init__(self, scope: Construct, name: str, *, domain: Domain) -> None:
        super().__init__(scope, name)
        certificate = acm.Certificate.from_certificate_arn(
            self, "Certificate", domain.certificate_arn
        )
        self.name = apigateway.DomainName(
            self,
            "Name",
            domain_name=domain.name,
            certificate=certificate,
            mtls=self._trusted(domain.truststore) if domain.truststore else None,
        )
        self.options = apigateway.DomainMappingOptions(
            domain_name=self.name, mapping_key=domain.prefix or None
        )

    def _trusted(self, truststore: str) -> apigateway.MTLSConfig:
        """
        Return the trust store; *truststore* is `s3://bucket/key` of a PEM file of certificates.
        """
        place = urlsplit(truststore)
        bucket = s3.Bucket.from_bucket_name(self, "TrustStore", place.netloc)
        return apigateway.MTLSConfig(bucket=bucket, key=place.path.lstrip("/"))


class FeedHttpApi(Construct):
    """
    The HTTP API; `url` is its address, without a path.

    It does not authorise requests: the functions check the feed's password.
    """

    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        stage: Stage,
        functions: Mapping[str, TidingsFunction],
        cors_origins: Sequence[str],
    ) -> None:
        super().__init__(scope, name)
        domain = FeedDomain(self, "Domain", domain=stage.domain) if stage.domain else None
        closed = bool(stage.domain and stage.domain.truststore)
        self.api = apigateway.HttpApi(
            self,
            "Api",
            api_name=f"tidings-{stage.name}-http",
            create_default_stage=False,
            # The API's own address would bypass the certificates of clients.
            disable_execute_api_endpoint=closed,
            cors_preflight=_cors(cors_origins),
        )
        apigateway.HttpStage(
            self,
            "Stage",
            http_api=self.api,
            stage_name="$default",
            auto_deploy=True,
            domain_mapping=domain.options if domain else None,
            throttle=apigateway.ThrottleSettings(
                rate_limit=stage.requests_per_s, burst_limit=stage.burst
            ),
            access_log_settings=AccessLog(
                self,
                "Logs",
                stage,
                path=f"{GATEWAY_LOGS}/tidings-{stage.name}-http",
                fields=HTTP_FIELDS,
            ),
            detailed_metrics_enabled=stage.route_metrics,
        )
        self.url = (
            f"https://{stage.domain.name}" if stage.domain and closed else self.api.api_endpoint
        )
        for function in functions.values():
            self._routes(function)

    def _routes(self, target: TidingsFunction) -> None:
        """
        Add the routes of *target* with one integration, so that it has one permission per route.
        """
        routes = [r for r in deployment.HTTP_ROUTES if r.function == target.blueprint.name]
        if target.blueprint.endless or not routes:
            return
        integration = _integration(target)
        for route in routes:
            if route.path == deployment.DEFAULT_PATH:
                apigateway.HttpRoute(
                    self,
                    "Default",
                    http_api=self.api,
                    route_key=apigateway.HttpRouteKey.DEFAULT,
                    integration=integration,
                )
                continue
            self.api.add_routes(
                path=route.path,
                methods=[apigateway.HttpMethod(route.method)],
                integration=integration,
            )


def _integration(target: TidingsFunction) -> apigateway.HttpRouteIntegration:
    """
    Return the integration of *target*; requests to a streaming function go to its own address.
    """
    name = f"{target.node.id}Integration"
    if target.url is None:
        return integrations.HttpLambdaIntegration(name, target.live)
    path = apigateway.ParameterMapping().overwrite_path(apigateway.MappingValue.request_path())
    return integrations.HttpUrlIntegration(
        name, target.url, method=apigateway.HttpMethod.GET, parameter_mapping=path
    )


def _cors(origins: Sequence[str]) -> apigateway.CorsPreflightOptions:
    """Return the CORS settings; the API replaces the CORS headers of the functions with these."""
    return apigateway.CorsPreflightOptions(
        allow_origins=list(origins),
        allow_methods=_methods(),
        allow_headers=list(CORS_HEADERS),
        expose_headers=list(EXPOSED),
        max_age=cdk.Duration.seconds(PREFLIGHT_AGE_S),
    )


def _methods() -> list[apigateway.CorsHttpMethod]:
    """Return the methods of all routes: an API answers preflights the same way for all paths."""
    named = {route.method for route in deployment.HTTP_ROUTES} - {"ANY"}
    return [apigateway.CorsHttpMethod(method) for method in sorted(named)]


METHODS = ("POST", "DELETE")  # send a message, close a connection
_SELECTED = "$default"  # the only template, for any message
_TAKEN = '{"statusCode":200}'  # otherwise API Gateway reports an error to the client


class FeedSocketApi(Construct):
    """
    The WebSocket API and its one stage; `connect` adds the routes once the functions exist.

    The functions need its address, and it needs the functions: hence two steps. Every client may
    connect. It sends the feed's password when it subscribes, since browsers cannot send headers
    here.
    """

    def __init__(self, scope: Construct, name: str, *, stage: Stage) -> None:
        super().__init__(scope, name)
        self.api = apigateway.WebSocketApi(self, "Api", api_name=f"tidings-{stage.name}-sockets")
        self.stage = stage
        self.deployed = apigateway.WebSocketStage(
            self,
            "Stage",
            web_socket_api=self.api,
            stage_name=SOCKET_STAGE,
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(
                rate_limit=stage.requests_per_s, burst_limit=stage.burst
            ),
            access_log_settings=AccessLog(
                self,
                "Logs",
                stage,
                path=f"{GATEWAY_LOGS}/tidings-{stage.name}-sockets",
                fields=SOCKET_FIELDS,
            ),
            detailed_metrics_enabled=stage.route_metrics,
        )
        self.url = self.deployed.url
        self.callback_url = self.deployed.callback_url

    @property
    def connection_arns(self) -> list[str]:
        """Return the ARN of all connections of this stage; IAM supports no narrower resource."""
        stack = cdk.Stack.of(self)
        return [
            stack.format_arn(
                service="execute-api",
                resource=self.api.api_id,
                resource_name=f"{SOCKET_STAGE}/{method}/@connections/*",
            )
            for method in METHODS
        ]

    def connect(self, functions: Mapping[str, TidingsFunction]) -> None:
        """Route every key of the blueprint to its function, or to a mock if it has none."""
        for route in deployment.SOCKET_ROUTES:
            if route.function:
                self._route(route.key, functions[route.function])
            else:
                self._take(route.key)

    def _route(self, key: str, target: TidingsFunction) -> None:
        self.api.add_route(
            key,
            integration=integrations.WebSocketLambdaIntegration(
                f"{target.node.id}Integration", target.live
            ),
        )

    def _take(self, key: str) -> None:
        """Add a route without a route response, which sends nothing back."""
        self.api.add_route(
            key,
            integration=integrations.WebSocketMockIntegration(
                f"{key}Integration",
                request_templates={_SELECTED: _TAKEN},
                template_selection_expression=f"\\{_SELECTED}",
            ),
        )
