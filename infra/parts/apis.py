"""The HTTP API and the WebSocket API: the routes of `deployment`, and access to connections.

In a stage with `one_address`, CloudFront is in front of both APIs and the event streams (ADR 55).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudfront_origins as origins
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra import ROOT
from infra.names import SOCKET_STAGE
from infra.parts.function import TidingsFunction
from infra.parts.logs import HTTP_FIELDS, SOCKET_FIELDS, AccessLog
from infra.parts.policies import removal_policy
from infra.settings import Domain, OneAddress, Stage
from tidings.aws.config import deployment
from tidings.aws.config.stages import ONE_URL_OUTPUT, SOCKETS_PATH
from tidings.core import limits
from tidings.core.auth.origins import EXPOSED
from tidings.http import answers
from tidings.http.answers import CORS_HEADERS, PREFLIGHT_AGE_S

# Log groups below this prefix need no statement of their own in the account's resource policy,
# which is limited to 5,120 characters.
GATEWAY_LOGS = "/aws/vendedlogs/apigateway"


class FeedDomain(Construct):
    """A custom domain; `options` maps the name to a stage of an API.

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
            mtls=self._mtls(domain.truststore) if domain.truststore else None,
        )
        self.options = apigateway.DomainMappingOptions(
            domain_name=self.name, mapping_key=domain.prefix or None
        )

    def _mtls(self, truststore: str) -> apigateway.MTLSConfig:
        """Return the trust store; *truststore* is `s3://bucket/key`, a PEM file of certificates."""
        place = urlsplit(truststore)
        bucket = s3.Bucket.from_bucket_name(self, "TrustStore", place.netloc)
        return apigateway.MTLSConfig(bucket=bucket, key=place.path.lstrip("/"))


class FeedHttpApi(Construct):
    """The HTTP API; `url` is its address, without a path.

    The API does not authorise requests; the functions check the feed's password.
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
            # The API's own address would not require a certificate from clients.
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
        """Add the routes of *target*; they share one integration and one permission."""
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
    """Return the integration that calls *target*, by its URL if it is a streaming function."""
    name = f"{target.node.id}Integration"
    if target.url is None:
        live = target.live  # with one permission for all routes of the API, which are ours
        return integrations.HttpLambdaIntegration(name, live, scope_permission_to_route=False)
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
    """Return the methods of all routes; an API answers preflights in the same way for all paths."""
    named = {route.method for route in deployment.HTTP_ROUTES} - {"ANY"}
    return [apigateway.CorsHttpMethod(method) for method in sorted(named)]


METHODS = ("POST", "DELETE")  # methods to send a message, and to close a connection
_SELECTED = "$default"  # the name of the only template, which answers every message
_ACCEPTED = '{"statusCode":200}'  # without this answer, API Gateway reports an error to the client


class FeedSocketApi(Construct):
    """The WebSocket API and its one stage; `connect` adds the routes once the functions exist.

    The API is created in two steps, because the functions need its address and its routes need the
    functions. Every client may connect. A client sends the feed's password when it subscribes,
    because browsers cannot send headers to a WebSocket.
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
        """Return an ARN for all connections of this stage, for each of `METHODS`.

        IAM supports no narrower resource.
        """
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
        """Add a route for each of `deployment.SOCKET_ROUTES`, to its function.

        A route without a function leads to a mock integration.
        """
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
        """Add a route that sends nothing back, because it has no route response."""
        self.api.add_route(
            key,
            integration=integrations.WebSocketMockIntegration(
                f"{key}Integration",
                request_templates={_SELECTED: _ACCEPTED},
                template_selection_expression=f"\\{_SELECTED}",
            ),
        )


CODE = ROOT / "infra" / "edge" / "viewer_request.js"
# The paths, other than `/`, on which GET returns a stream. The path `/` has the default behavior.
# For `/` and for these paths, the edge function selects the origin by the method.
OPERATIONS_PATHS = ("/ops", "/feeds/*/ops")
WINDOW_HEADER = "x-tidings-window"
# How long an origin may send nothing: a stream sends a comment every 20 s, and a list answers
# within 30 s.
ORIGIN_S = 60
# Statuses that CloudFront would cache for ten seconds, most of them even with `no-store`.
ERRORS = (400, 403, 404, 405, 414, 416, 500, 501, 502, 503, 504)
_ACCEPT_ENCODING = "Accept-Encoding"


class Unreachable(Exception):
    """With the settings of the stage, CloudFront could not reach its origins."""


@dataclass(frozen=True, slots=True)
class Urls:
    """The three addresses that a stage has with or without a distribution."""

    http: str
    stream: str
    sockets: str


class FeedDistribution(Construct):
    """A CloudFront distribution; `url` is the single address.

    The three addresses in *urls* stay available. The owner of the DNS zone points a custom name to
    the output `UrlTarget`.
    """

    def __init__(
        self, scope: Construct, name: str, *, stage: Stage, wanted: OneAddress, urls: Urls
    ) -> None:
        super().__init__(scope, name)
        _check(stage)
        self._origins = {
            each: _origin(each, url)
            for each, url in (
                ("http", urls.http),
                ("stream", urls.stream),
                ("sockets", urls.sockets),
            )
        }
        self._edge = self._function()
        self.distribution = cloudfront.Distribution(
            self,
            "Distribution",
            comment=f"Tidings, {stage.name}",
            default_behavior=self._passed_on("http"),
            additional_behaviors=self._behaviors(),
            http_version=cloudfront.HttpVersion.HTTP2_AND_3,
            minimum_protocol_version=cloudfront.SecurityPolicyProtocol.TLS_V1_2_2021,
            error_responses=[
                cloudfront.ErrorResponse(http_status=status, ttl=cdk.Duration.seconds(0))
                for status in ERRORS
            ],
            web_acl_id=wanted.web_acl_arn or None,
            log_bucket=_log_bucket(self, stage),
            # Without a custom name, the distribution only has a name generated by CloudFront.
            domain_names=[wanted.name] if wanted.name else None,
            certificate=self._certificate(wanted) if wanted.name else None,
        )
        domain = self.distribution.distribution_domain_name
        self.url = f"https://{wanted.name or domain}"
        stack = cdk.Stack.of(self)
        cdk.CfnOutput(stack, ONE_URL_OUTPUT, value=self.url)
        cdk.CfnOutput(stack, f"{ONE_URL_OUTPUT}Target", value=domain)

    def _behaviors(self) -> Mapping[str, cloudfront.BehaviorOptions]:
        """Return the behaviors by path; requests to other paths are passed to the HTTP API."""
        shared = self._shared_cache()
        return {
            SOCKETS_PATH: self._passed_on("sockets"),
            **dict.fromkeys(OPERATIONS_PATHS, self._passed_on("stream")),
            **dict.fromkeys(answers.CACHED_PATHS, shared),
        }

    def _passed_on(self, origin: str) -> cloudfront.BehaviorOptions:
        """Return a behavior that passes requests to *origin* without caching.

        Without caching, equal requests do not wait for each other.
        """
        return self._behavior(origin, cloudfront.CachePolicy.CACHING_DISABLED, compress=False)

    def _shared_cache(self) -> cloudfront.BehaviorOptions:
        """Return a behavior that caches each answer for the time its Cache-Control allows.

        An answer without Cache-Control is not cached. The cache key is `answers.CACHE_KEY`.
        """
        listed = [each for each in answers.CACHE_KEY if each != _ACCEPT_ENCODING]
        policy = cloudfront.CachePolicy(
            self,
            "Shared",
            min_ttl=cdk.Duration.seconds(0),
            default_ttl=cdk.Duration.seconds(0),
            max_ttl=cdk.Duration.seconds(limits.SHARED_S),
            query_string_behavior=cloudfront.CacheQueryStringBehavior.all(),
            header_behavior=cloudfront.CacheHeaderBehavior.allow_list(*listed, WINDOW_HEADER),
            enable_accept_encoding_gzip=True,
        )
        return self._behavior("http", policy, compress=True)

    def _behavior(
        self, origin: str, policy: cloudfront.ICachePolicy, *, compress: bool
    ) -> cloudfront.BehaviorOptions:
        return cloudfront.BehaviorOptions(
            origin=self._origins[origin],
            cache_policy=policy,
            # The origins accept only their own `Host`.
            origin_request_policy=cloudfront.OriginRequestPolicy.ALL_VIEWER_EXCEPT_HOST_HEADER,
            allowed_methods=cloudfront.AllowedMethods.ALLOW_ALL,
            viewer_protocol_policy=cloudfront.ViewerProtocolPolicy.HTTPS_ONLY,
            compress=compress,
            function_associations=[
                cloudfront.FunctionAssociation(
                    function=self._edge, event_type=cloudfront.FunctionEventType.VIEWER_REQUEST
                )
            ],
        )

    def _function(self) -> cloudfront.Function:
        code = CODE.read_text(encoding="utf-8").replace("__SOCKET_STAGE__", SOCKET_STAGE)
        return cloudfront.Function(
            self,
            "ViewerRequest",
            code=cloudfront.FunctionCode.from_inline(code),
            runtime=cloudfront.FunctionRuntime.JS_2_0,
        )

    def _certificate(self, wanted: OneAddress) -> acm.ICertificate:
        return acm.Certificate.from_certificate_arn(self, "Certificate", wanted.certificate_arn)


def one_address(scope: Construct, stage: Stage, urls: Urls) -> FeedDistribution | None:
    """Return the distribution of *stage*; None if the stage has no `one_address`."""
    if stage.one_address is None:
        return None
    return FeedDistribution(scope, "OneAddress", stage=stage, wanted=stage.one_address, urls=urls)


def _check(stage: Stage) -> None:
    if stage.domain and (stage.domain.truststore or stage.domain.prefix):
        raise Unreachable(
            f"{stage.name}: one_address cannot be combined with a domain that has a truststore or a"
            " prefix"
        )


def _origin(name: str, url: str) -> origins.HttpOrigin:
    """Return an origin for the host of *url*; the edge function refers to it by *name*."""
    return origins.HttpOrigin(
        cdk.Fn.select(2, cdk.Fn.split("/", url)),
        origin_id=name,
        protocol_policy=cloudfront.OriginProtocolPolicy.HTTPS_ONLY,
        origin_ssl_protocols=[cloudfront.OriginSslPolicy.TLS_V1_2],
        read_timeout=cdk.Duration.seconds(ORIGIN_S),
        keepalive_timeout=cdk.Duration.seconds(ORIGIN_S),
    )


def _log_bucket(scope: Construct, stage: Stage) -> s3.Bucket:
    """Return the bucket of CloudFront's access log, which has the addresses of clients."""
    return s3.Bucket(
        scope,
        "Logs",
        encryption=s3.BucketEncryption.S3_MANAGED,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        # CloudFront gets access to the bucket by an ACL, and this setting allows ACLs.
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_PREFERRED,
        enforce_ssl=True,
        lifecycle_rules=[s3.LifecycleRule(expiration=cdk.Duration.days(stage.log_days))],
        removal_policy=removal_policy(stage),
    )
