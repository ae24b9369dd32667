"""The addresses of a stage: a domain of its own, and one address for all three."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import cdk_nag
import pytest
from aws_cdk.assertions import Annotations, Match
from aws_cdk.assertions import Template as Synthesised

from infra import suppressions
from infra.names import SOCKET_STAGE
from infra.parts.apis import CODE, WINDOW_HEADER, FeedHttpApi, Unreachable, Urls, one_address
from infra.settings import STAGES, Domain, OneAddress, Stage
from tests.infra.templates import Template, app
from tidings.core import limits
from tidings.http import answers

pytestmark = pytest.mark.node

CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/1"
ACL = "arn:aws:wafv2:us-east-1:123456789012:global/webacl/rules/1"
NAMED = OneAddress("feed.example.org", CERTIFICATE, ACL)
URLS = Urls("https://http.example", "https://stream.example/", "wss://sockets.example/live")
NOW_MS = 1_795_582_216_476


def made(
    wanted: OneAddress = NAMED, folder: Path | None = None, **more: Any
) -> tuple[cdk.Stack, Stage]:
    """Return a stack with the distribution of a stage alone, checked as `make synth` does."""
    stage = replace(STAGES[0], one_address=wanted, **more)
    stack = cdk.Stack(app(folder), "Stack")
    one_address(stack, stage, URLS)
    suppressions.apply(stack)
    cdk.Aspects.of(stack).add(cdk_nag.AwsSolutionsChecks())
    return stack, stage


@pytest.fixture(scope="module")
def built() -> tuple[cdk.Stack, Template]:
    stack, stage = made()
    return stack, Template(stage, dict(Synthesised.from_stack(stack).to_json()))


@pytest.fixture(scope="module")
def config(built: tuple[cdk.Stack, Template]) -> dict[str, Any]:
    """Return the configuration of the distribution."""
    found = built[1].only("AWS::CloudFront::Distribution", "OneAddress")[1]
    given: dict[str, Any] = found["DistributionConfig"]
    return given


def test_each_exception_is_used(tmp_path: Path) -> None:
    """By an address without a name and rules of its own."""
    stack, _ = made(OneAddress(), tmp_path)
    Synthesised.from_stack(stack)
    reports = "".join(path.read_text() for path in tmp_path.glob("*-NagReport.csv"))

    unused = [each.rule for each in suppressions.OF_ONE_ADDRESS if each.reason not in reports]
    assert unused == []


def test_its_name_its_certificate_and_its_rules(config: dict[str, Any]) -> None:
    """No client is served over less than TLS 1.2, nor in the clear."""
    assert config["Aliases"] == ["feed.example.org"]
    assert config["WebACLId"] == ACL
    assert config["ViewerCertificate"]["AcmCertificateArn"] == CERTIFICATE
    assert config["ViewerCertificate"]["MinimumProtocolVersion"] == "TLSv1.2_2021"
    for each in (config["DefaultCacheBehavior"], *config["CacheBehaviors"]):
        assert each["ViewerProtocolPolicy"] == "https-only"
        assert {"POST", "PUT", "DELETE", "OPTIONS"} <= set(each["AllowedMethods"])


def test_each_path_has_its_origin(config: dict[str, Any]) -> None:
    """By their own hosts, known to the function at the edge, with time for a silent stream."""
    origins = {each["Id"]: each for each in config["Origins"]}
    assert {name: each["DomainName"] for name, each in origins.items()} == {
        "http": "http.example",
        "stream": "stream.example",
        "sockets": "sockets.example",
    }
    for each in origins.values():
        assert each["CustomOriginConfig"]["OriginReadTimeout"] > limits.LIST_TIMEOUT_S
        assert each["CustomOriginConfig"]["OriginProtocolPolicy"] == "https-only"
    assert config["DefaultCacheBehavior"]["TargetOriginId"] == "http"
    assert {each["PathPattern"]: each["TargetOriginId"] for each in config["CacheBehaviors"]} == {
        "/ws": "sockets",
        "/ops": "stream",
        "/feeds/*/ops": "stream",
        **dict.fromkeys(answers.CACHED_PATHS, "http"),
    }


def test_no_error_is_kept(config: dict[str, Any]) -> None:
    """CloudFront would for ten seconds, most of them whatever they say of it."""
    errors = {
        each["ErrorCode"]: each["ErrorCachingMinTTL"] for each in config["CustomErrorResponses"]
    }
    assert errors == dict.fromkeys((400, 403, 404, 405, 414, 416, 500, 501, 502, 503, 504), 0)


def test_what_is_kept_has_the_credential_in_its_key(
    built: tuple[cdk.Stack, Template], config: dict[str, Any]
) -> None:
    """For a second, where the answer says so; everything else is passed on."""
    name, found = built[1].only("AWS::CloudFront::CachePolicy", "OneAddress")
    policy = found["CachePolicyConfig"]
    key = policy["ParametersInCacheKeyAndForwardedToOrigin"]
    assert (policy["MinTTL"], policy["DefaultTTL"], policy["MaxTTL"]) == (0, 0, limits.SHARED_S)
    listed = {WINDOW_HEADER, *answers.CACHE_KEY} - {"Accept-Encoding"}
    assert set(key["HeadersConfig"]["Headers"]) == listed
    assert key["EnableAcceptEncodingGzip"] and key["CookiesConfig"]["CookieBehavior"] == "none"
    assert key["QueryStringsConfig"]["QueryStringBehavior"] == "all"
    kept = {
        each["PathPattern"]
        for each in config["CacheBehaviors"]
        if each["CachePolicyId"] == {"Ref": name}
    }
    assert kept == set(answers.CACHED_PATHS)
    assert config["DefaultCacheBehavior"]["CachePolicyId"] != {"Ref": name}


@pytest.mark.parametrize("more", [{"truststore": "s3://certs/ca.pem"}, {"prefix": "foo"}])
def test_a_closed_api_is_not_put_behind_it(more: dict[str, str]) -> None:
    """CloudFront has no certificate of a client, and serves no path as the root."""
    with pytest.raises(Unreachable):
        made(domain=Domain("api.example.org", CERTIFICATE, **more))


# How long the span of time is that a request with this query belongs to; 0: it does not wait.
WINDOWS = {
    **{"": 0, "block=1": 1, "block=7&since=1": 7, "block=25": 20},
    **dict.fromkeys(("block=0", "block=x", "block=-1", "block="), 0),
}
WINDOW_S_MAX = 20


@pytest.fixture(scope="module")
def at_the_edge() -> list[dict[str, Any]]:
    """Return the requests after the function, run by Node.js instead of CloudFront."""
    code = CODE.read_text().replace("__SOCKET_STAGE__", SOCKET_STAGE)
    told = "let chosen = null; const cf = {selectRequestOriginById: (id) => { chosen = id; }};"
    code = code.replace("import cf from 'cloudfront';", told)
    assert "import" not in code
    requests = [
        *({"uri": "/changes", "method": "GET", "query": query} for query in WINDOWS),
        *({"uri": uri, "method": method, "query": ""} for uri, method in ORIGINS),
    ]
    run = f"""
        Date.now = () => {NOW_MS};
        const told = {json.dumps(requests)}.map((each) => {{
            chosen = null;
            const pairs = [...new URLSearchParams(each.query)];
            const querystring = Object.fromEntries(pairs.map(([name, value]) => [name, {{value}}]));
            const headers = {{host: {{value: 'feed.example.org'}}}};
            headers['{WINDOW_HEADER}'] = {{value: 'mine'}};
            const request = handler({{request: {{...each, querystring, headers}}}});
            return {{uri: request.uri, origin: chosen, headers: request.headers}};
        }});
        console.log(JSON.stringify(told));
    """
    printed = subprocess.run(["node", "-e", code + run], capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(printed.stdout)
    return found


ORIGINS = {
    ("/", "GET"): "stream",
    ("/", "POST"): "http",
    ("/ops", "GET"): "stream",
    ("/ops", "OPTIONS"): "http",
    ("/feeds/a/ops", "GET"): "stream",
    ("/feeds/a/ops", "POST"): "http",
    ("/feeds/a/status", "GET"): None,
    ("/ws", "GET"): None,
}


def test_the_edge_tells_spans_of_time_apart(at_the_edge: list[dict[str, Any]]) -> None:
    """Whatever the client said in that header."""
    found = [each["headers"][WINDOW_HEADER]["value"] for each in at_the_edge]
    wanted = [str(NOW_MS // 1000 // each if each else 0) for each in WINDOWS.values()]
    assert found[: len(WINDOWS)] == wanted
    assert {each["headers"]["x-forwarded-host"]["value"] for each in at_the_edge} == {
        "feed.example.org"
    }


def test_the_edge_chooses_the_origin(at_the_edge: list[dict[str, Any]]) -> None:
    """By the method where a path has two, and the one path that a WebSocket API knows."""
    found = at_the_edge[len(WINDOWS) :]
    assert dict(zip(ORIGINS, (each["origin"] for each in found), strict=True)) == ORIGINS
    assert [each["uri"] for each in found if each["uri"].startswith("/live")] == ["/live"]


def test_a_window_is_shorter_than_any_wait() -> None:
    """Otherwise a reader that waited in vain could get the same answer again."""
    assert min(limits.CHANGES_BLOCK_S_MAX, limits.BATCH_BLOCK_S_MAX) >= WINDOW_S_MAX


def test_the_checks_of_synth_find_nothing(built: tuple[cdk.Stack, Template]) -> None:
    """Each exception has its reason, in `infra.suppressions`."""
    any_text = Match.string_like_regexp("AwsSolutions.*")
    assert Annotations.from_stack(built[0]).find_error("*", any_text) == []
    assert Annotations.from_stack(built[0]).find_warning("*", any_text) == []


ARN = "arn:aws:acm:eu-west-1:123456789012:certificate/1"


def api(domain: Domain) -> Synthesised:
    """Return the API of a stage with this domain, without its routes."""
    stack, stage = cdk.Stack(app(), "Stack"), replace(STAGES[0], domain=domain)
    FeedHttpApi(stack, "Http", stage=stage, functions={}, cors_origins=["*"])
    return Synthesised.from_stack(stack)


def test_a_domain_is_mapped_below_its_prefix() -> None:
    """The API's own address stays valid."""
    found = api(Domain("feed.example.com", ARN, prefix="foo"))

    found.has_resource_properties(
        "AWS::ApiGatewayV2::DomainName", {"DomainName": "feed.example.com"}
    )
    found.has_resource_properties("AWS::ApiGatewayV2::ApiMapping", {"ApiMappingKey": "foo"})
    found.has_resource_properties("AWS::ApiGatewayV2::Api", {"DisableExecuteApiEndpoint": False})


def test_a_trust_store_demands_certificates() -> None:
    """The API's own address does not bypass it."""
    found = api(Domain("feed.example.com", ARN, truststore="s3://certs/clients/ca.pem"))

    [name] = found.find_resources("AWS::ApiGatewayV2::DomainName").values()
    assert "clients/ca.pem" in str(name["Properties"]["MutualTlsAuthentication"])
    found.has_resource_properties("AWS::ApiGatewayV2::Api", {"DisableExecuteApiEndpoint": True})
