"""An API with a name of its own, and one that asks its clients for certificates."""

from __future__ import annotations

from dataclasses import replace

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template

from infra.parts.apis import FeedHttpApi
from infra.settings import STAGES, Domain
from tests.infra.templates import app

pytestmark = pytest.mark.node

ARN = "arn:aws:acm:eu-west-1:123456789012:certificate/1"


def template(domain: Domain) -> Template:
    """Return the API of a stage with this domain, without its routes."""
    stack, stage = cdk.Stack(app(), "Stack"), replace(STAGES[0], domain=domain)
    FeedHttpApi(stack, "Http", stage=stage, functions={}, cors_origins=["*"])
    return Template.from_stack(stack)


def test_a_domain_is_mapped_below_its_prefix() -> None:
    """The API's own address stays valid."""
    found = template(Domain("feed.example.com", ARN, prefix="foo"))

    found.has_resource_properties(
        "AWS::ApiGatewayV2::DomainName", {"DomainName": "feed.example.com"}
    )
    found.has_resource_properties("AWS::ApiGatewayV2::ApiMapping", {"ApiMappingKey": "foo"})
    found.has_resource_properties("AWS::ApiGatewayV2::Api", {"DisableExecuteApiEndpoint": False})


def test_a_trust_store_demands_certificates() -> None:
    """The API's own address does not bypass it."""
    found = template(Domain("feed.example.com", ARN, truststore="s3://certs/clients/ca.pem"))

    [name] = found.find_resources("AWS::ApiGatewayV2::DomainName").values()
    assert "clients/ca.pem" in str(name["Properties"]["MutualTlsAuthentication"])
    found.has_resource_properties("AWS::ApiGatewayV2::Api", {"DisableExecuteApiEndpoint": True})
