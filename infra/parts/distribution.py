"""One address for the three of a stage: CloudFront in front of them (docs/adr/0055)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_cloudfront as cloudfront
from aws_cdk import aws_cloudfront_origins as origins
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.names import SOCKET_STAGE
from infra.parts.policies import kept
from infra.paths import ROOT
from infra.settings import OneAddress, Stage
from tidings.aws.config.stages import ONE_URL_OUTPUT, SOCKETS_PATH
from tidings.core import limits
from tidings.http import answers

CODE = ROOT / "infra" / "edge" / "viewer_request.js"
OPERATIONS_PATHS = ("/ops", "/feeds/*/ops")  # and `/`, by the default behavior
WINDOW_HEADER = "x-tidings-window"
ORIGIN_S = 60  # maximum silence: a stream sends a comment each 20 s, a list answers within 30 s
# Statuses that CloudFront would cache for ten seconds, most of them even with `no-store`.
ERRORS = (400, 403, 404, 405, 414, 416, 500, 501, 502, 503, 504)
_ACCEPT_ENCODING = "Accept-Encoding"


class Unreachable(Exception):
    """CloudFront cannot reach the origins with the settings of the stage."""


@dataclass(frozen=True, slots=True)
class Urls:
    """The three addresses of the stage without a distribution."""

    http: str
    stream: str
    sockets: str


class FeedDistribution(Construct):
    """
    A CloudFront distribution; `url` is the single address, and the other three stay available.

    The owner of the DNS zone points a custom name to the output `UrlTarget`.
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
            # Without a custom name it has one of CloudFront's.
            domain_names=[wanted.name] if wanted.name else None,
            certificate=self._certificate(wanted) if wanted.name else None,
        )
        domain = self.distribution.distribution_domain_name
        self.url = f"https://{wanted.name or domain}"
        stack = cdk.Stack.of(self)
        cdk.CfnOutput(stack, ONE_URL_OUTPUT, value=self.url)
        cdk.CfnOutput(stack, f"{ONE_URL_OUTPUT}Target", value=domain)

    def _behaviors(self) -> Mapping[str, cloudfront.BehaviorOptions]:
        """Return the behaviors by path; other requests are passed to the HTTP API."""
        shared = self._shared()
        return {
            SOCKETS_PATH: self._passed_on("sockets"),
            **dict.fromkeys(OPERATIONS_PATHS, self._passed_on("stream")),
            **dict.fromkeys(answers.CACHED_PATHS, shared),
        }

    def _passed_on(self, origin: str) -> cloudfront.BehaviorOptions:
        """Return a behavior without caching; requests do not wait for each other."""
        return self._behavior(origin, cloudfront.CachePolicy.CACHING_DISABLED, compress=False)

    def _shared(self) -> cloudfront.BehaviorOptions:
        """
        Return a behavior that caches an answer as long as it declares, by its key; else not at all.
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
                    function=self._edge,
                    event_type=cloudfront.FunctionEventType.VIEWER_REQUEST,
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
    """Return the distribution of *stage*; None if it has none."""
    if stage.one_address is None:
        return None
    return FeedDistribution(scope, "OneAddress", stage=stage, wanted=stage.one_address, urls=urls)


def _check(stage: Stage) -> None:
    """
    Check the settings of *stage*.

    Raises:
        Unreachable: the HTTP API requires client certificates, or serves below a path.
    """
    if stage.domain and (stage.domain.truststore or stage.domain.prefix):
        raise Unreachable(
            f"{stage.name}: one_address goes with no domain that has a truststore or a prefix"
        )


def _origin(name: str, url: str) -> origins.HttpOrigin:
    """Return the host of *url* as origin, called *name* in the edge function."""
    return origins.HttpOrigin(
        cdk.Fn.select(2, cdk.Fn.split("/", url)),
        origin_id=name,
        protocol_policy=cloudfront.OriginProtocolPolicy.HTTPS_ONLY,
        origin_ssl_protocols=[cloudfront.OriginSslPolicy.TLS_V1_2],
        read_timeout=cdk.Duration.seconds(ORIGIN_S),
        keepalive_timeout=cdk.Duration.seconds(ORIGIN_S),
    )


def _log_bucket(scope: Construct, stage: Stage) -> s3.Bucket:
    """
    Return the bucket of the access log: origins see the edge's address, only the edge sees clients.
    """
    return s3.Bucket(
        scope,
        "Logs",
        encryption=s3.BucketEncryption.S3_MANAGED,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        # CloudFront writes its logs as their owner, by an ACL.
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_PREFERRED,
        enforce_ssl=True,
        lifecycle_rules=[s3.LifecycleRule(expiration=cdk.Duration.days(stage.log_days))],
        removal_policy=kept(stage),
    )
