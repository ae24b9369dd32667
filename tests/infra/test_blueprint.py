"""Everything in the blueprint is deployed, as the blueprint says, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from infra import FUNCTIONS
from tests.infra.templates import Template, text
from tidings.aws.config import deployment, settings
from tidings.core.auth.origins import EXPOSED
from tidings.http.answers import CORS_HEADERS

pytestmark = pytest.mark.node

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
STREAM_READERS_MAX = 2


@pytest.mark.parametrize("function", deployment.FUNCTIONS, ids=lambda f: f.name)
def test_function_starts_with_the_environment_it_gets(
    template: Template, function: deployment.Function
) -> None:
    """The settings parse, tables and addresses are references, its own settings are its own."""
    variables = template.function(function.name)[1]["Environment"]["Variables"]
    found = settings.Settings.read({name: text(value) for name, value in variables.items()})
    tables = {table.setting for table in deployment.TABLES}

    assert found.stage == template.stage.name
    assert found.function_prefix == f"tidings-{template.stage.name}-"
    assert found.follower == function.environment.get("TIDINGS_FOLLOWER", "")
    assert found.sockets_url.startswith("https://") and found.sockets_url.endswith("/live")
    assert all("Ref" in variables[name] for name in tables)


def test_every_setting_with_a_value_is_set(template: Template) -> None:
    """All possible settings are set, so that the console shows the valid values."""
    told: set[str] = set()
    for function in template.resources("AWS::Lambda::Function").values():
        told |= set(function["Environment"]["Variables"])

    missing = {setting.variable for setting in settings.SETTINGS} - told
    assert missing == {"TIDINGS_CAPTURE"}  # for tables that produce alone


def test_no_variable_is_made_up(template: Template) -> None:
    """Every TIDINGS_ variable is one that the functions read."""
    known = {setting.variable for setting in settings.SETTINGS}
    for function in template.resources("AWS::Lambda::Function").values():
        told = {v for v in function["Environment"]["Variables"] if v.startswith("TIDINGS_")}

        assert set() == told - known


def test_stream_function_runs_behind_the_web_adapter(template: Template) -> None:
    """AWS's adapter layer, its variables, a start script that may run, and room for a layer."""
    for function in (f for f in deployment.FUNCTIONS if f.streams):
        deployed = template.function(function.name)[1]
        variables = deployed["Environment"]["Variables"]

        # 26 and earlier versions are release candidates.
        assert "753240598075:layer:LambdaAdapterLayerArm64:27" in text(deployed["Layers"][-1])
        assert (variables["AWS_LWA_INVOKE_MODE"], variables["AWS_LAMBDA_EXEC_WRAPPER"]) == (
            "response_stream",
            "/opt/bootstrap",
        )
        assert (FUNCTIONS / function.folder / deployed["Handler"]).stat().st_mode & 0o111
        assert len(deployed["Layers"]) <= 4  # Lambda takes five: an organisation can add one


def test_preflights_are_answered_alike(template: Template) -> None:
    """The HTTP API allows what the app and the twin allow, for the same origins and methods."""
    (api,) = (
        each
        for each in template.resources("AWS::ApiGatewayV2::Api").values()
        if each["ProtocolType"] == "HTTP"
    )
    allowed = api["CorsConfiguration"]

    assert tuple(allowed["AllowHeaders"]) == CORS_HEADERS
    assert tuple(allowed["ExposeHeaders"]) == EXPOSED
    assert allowed["AllowOrigins"] == ["*"]
    methods = {route.method for route in deployment.HTTP_ROUTES if route.method != "ANY"}
    assert {"GET", "POST", "PUT", "DELETE"} <= methods == set(allowed["AllowMethods"])


def test_answers_that_wait_are_passed_on_to_a_function_of_their_own(template: Template) -> None:
    """With the path as it came: one address is enough for a client of changes. And not to `stream`:
    disconnected readers may occupy all of its instances.
    """
    (passed,) = (
        each
        for each in template.resources("AWS::ApiGatewayV2::Integration").values()
        if each["IntegrationType"] == "HTTP_PROXY"
    )

    assert passed["RequestParameters"] == {"overwrite:path": "$request.path"}
    urls = template.resources("AWS::Lambda::Url")
    (url,) = (
        urls[name] for name in urls if f"<{name}.FunctionUrl>" == text(passed["IntegrationUri"])
    )
    assert text(url["TargetFunctionArn"]) == f"<{template.function('list')[0]}.Arn>"


def test_8_7_a_keep_alive_is_taken_by_the_socket_api_itself(template: Template) -> None:
    """P8.7: chosen by the action, a mock integration that ends well, and nothing is sent back."""
    (api,) = (
        each
        for each in template.resources("AWS::ApiGatewayV2::Api").values()
        if each["ProtocolType"] == "WEBSOCKET"
    )
    routes = template.resources("AWS::ApiGatewayV2::Route").values()
    (route,) = (each for each in routes if each["RouteKey"] == "keepalive")
    integrations = template.resources("AWS::ApiGatewayV2::Integration")
    target = text(route["Target"]).removeprefix("integrations/<").removesuffix(">")

    assert api["RouteSelectionExpression"] == "$request.body.action"
    assert integrations[target]["IntegrationType"] == "MOCK"
    assert integrations[target]["TemplateSelectionExpression"] == "\\$default"
    assert integrations[target]["RequestTemplates"] == {"$default": '{"statusCode":200}'}
    assert "RouteResponseSelectionExpression" not in route
    assert not template.resources("AWS::ApiGatewayV2::RouteResponse")


def test_a_stream_has_two_readers_at_most(template: Template) -> None:
    """AWS throttles a third; docs/design/SCALE.md says what to take in place of one."""
    mappings = template.resources("AWS::Lambda::EventSourceMapping").values()
    readers = Counter(text(each["EventSourceArn"]) for each in mappings)
    assert readers and max(readers.values()) <= STREAM_READERS_MAX


def test_what_expires_wakes_nothing() -> None:
    """Deleted pages and messages are not events: a stream would report mostly these."""
    assert all("REMOVE" not in source.kinds for source in deployment.STREAM_SOURCES)


def test_functions_that_reach_themselves_may(template: Template) -> None:
    """Lambda would end a backlog's chain of calls after some 16; nothing else is let loop."""
    loops = {
        each["FunctionName"].removeprefix(f"tidings-{template.stage.name}-")
        for each in template.resources("AWS::Lambda::Function").values()
        if each.get("RecursiveLoop") == "Allow"
    }
    alone = {each.name for each in deployment.FUNCTIONS if each.name in each.invokes}

    assert alone == {"follow-state", "follow-push", "follow-archive", "follow-relay", "replay"}
    # `forward` parks messages in the table that invokes it; `erase` and `follow-state` wake each
    # other.
    assert loops == alone | {"forward", "erase"}


def test_function_writes_its_own_logs_only(template: Template) -> None:
    """One log group a role."""
    for function in deployment.FUNCTIONS:
        group = template.function(function.name)[1]["LoggingConfig"]["LogGroup"]["Ref"]

        may = template.may(template.role_of(function.name))
        assert {f"<{group}.Arn>"} == {each for action, each in may if action.startswith("logs:")}


def test_only_our_apis_and_the_stream_url_may_invoke(template: Template) -> None:
    """Permissions name an API as their source; the function URL accepts every caller."""
    streams = {
        template.function(each.name)[0] if each.endless else template.live(each.name)
        for each in deployment.FUNCTIONS
        if each.streams
    }
    for permission in template.resources("AWS::Lambda::Permission").values():
        if permission["Principal"] == "apigateway.amazonaws.com":
            assert ":execute-api:" in text(permission["SourceArn"])
        else:
            assert permission["Principal"] == "*"
            assert text(permission["FunctionName"]).strip("<>").removesuffix(".Arn") in streams


def test_a_function_has_one_permission_for_the_http_api(template: Template) -> None:
    """A permission for each route would fill the policy of a function, and the stack."""
    sources = Counter(
        text(permission["FunctionName"])
        for permission in template.resources("AWS::Lambda::Permission").values()
        if "HttpApi" in text(permission.get("SourceArn", ""))
    )
    called = {route.function for route in deployment.HTTP_ROUTES}
    by_url = {each.name for each in deployment.FUNCTIONS if each.streams}
    assert {*sources.values()} == {1} and len(sources) == len(called - by_url)


def test_no_stage_is_open(template: Template) -> None:
    """A feed without a password is closed wherever it is deployed."""
    for function in template.resources("AWS::Lambda::Function").values():
        assert function["Environment"]["Variables"]["TIDINGS_OPEN"] == "false"
