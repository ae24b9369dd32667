"""A name of the operator's own for the HTTP API, and who may connect to it."""

from __future__ import annotations

from urllib.parse import urlsplit

from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.settings import Domain


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
