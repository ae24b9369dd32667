"""The HTTP API: every HTTP route of the blueprint whose answer is not endless, and its domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_s3 as s3
from constructs import Construct
from tidings.aws.config import deployment
from tidings.core.auth.origins import EXPOSED
from tidings.http.answers import CORS_HEADERS, PREFLIGHT_AGE_S

from infra.parts.function import TidingsFunction
from infra.parts.logs import HTTP_FIELDS, AccessLog
from infra.settings import Domain, Stage


class FeedDomain(Construct):
    """
    `options` maps the name to a stage of an API.

    With a trust store clients need a certificate one of its authorities has signed (mutual TLS).
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
        """*truststore* is `s3://bucket/key` of a file of certificates in PEM."""
        place = urlsplit(truststore)
        bucket = s3.Bucket.from_bucket_name(self, "TrustStore", place.netloc)
        return apigateway.MTLSConfig(bucket=bucket, key=place.path.lstrip("/"))


class FeedHttpApi(Construct):
    """
    `url` is the address of the API, without a path.

    It authorises nobody: the functions ask for the feed's password.
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
            # Its own address would be a way around the certificates of clients.
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
                path=f"/aws/apigateway/tidings-{stage.name}-http",
                fields=HTTP_FIELDS,
            ),
            detailed_metrics_enabled=stage.all_metrics,
        )
        self.url = (
            f"https://{stage.domain.name}" if stage.domain and closed else self.api.api_endpoint
        )
        for function in functions.values():
            self._routes(function)

    def _routes(self, target: TidingsFunction) -> None:
        """One integration a function, so that it gets one permission a route and no more."""
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
    """Requests to a function that streams go to its own address."""
    name = f"{target.node.id}Integration"
    if target.url is None:
        return integrations.HttpLambdaIntegration(name, target.live)
    path = apigateway.ParameterMapping().overwrite_path(apigateway.MappingValue.request_path())
    return integrations.HttpUrlIntegration(
        name, target.url, method=apigateway.HttpMethod.GET, parameter_mapping=path
    )


def _cors(origins: Sequence[str]) -> apigateway.CorsPreflightOptions:
    """The API leaves out what the functions say of CORS, and says this instead."""
    return apigateway.CorsPreflightOptions(
        allow_origins=list(origins),
        allow_methods=_methods(),
        allow_headers=list(CORS_HEADERS),
        expose_headers=list(EXPOSED),
        max_age=cdk.Duration.seconds(PREFLIGHT_AGE_S),
    )


def _methods() -> list[apigateway.CorsHttpMethod]:
    """What any route takes: an API answers preflights alike for all its paths."""
    named = {route.method for route in deployment.HTTP_ROUTES} - {"ANY"}
    return [apigateway.CorsHttpMethod(method) for method in sorted(named)]
