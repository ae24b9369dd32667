"""Everything in the blueprint is deployed, as it says, and is called by its alias."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from infra import FUNCTIONS
from infra.settings import Stage, choose_stages
from tests.infra.templates import Template, as_list, of_assembly, synthesised, text
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


_TABLE = "AWS::DynamoDB::Table"


def test_every_function_is_called_by_its_alias(template: Template) -> None:
    """Nothing leads to a function past it, but the address of the streams that clients have."""
    functions = {template.function(each.name)[0]: each.name for each in deployment.FUNCTIONS}
    past = {
        functions[name]
        for kind in (
            *("AWS::ApiGatewayV2::Integration", "AWS::Lambda::EventSourceMapping"),
            *("AWS::Lambda::Permission", "AWS::Scheduler::Schedule"),
            *("AWS::StepFunctions::StateMachine", "AWS::Lambda::Url"),
        )
        for each in template.resources(kind).values()
        if "Qualifier" not in each
        for name in functions
        if f"<{name}." in _written(each) or f"<{name}>" in _written(each)
    }

    assert past == {"stream"}


def _written(value: Any) -> str:
    """Return all of *value* with its references written out."""
    match value:
        case {"Ref": _} | {"Fn::GetAtt": _}:
            return text(value)
        case dict():
            return " ".join(map(_written, value.values()))
        case list():
            return " ".join(map(_written, value))
    return ""


def test_prod_alone_tries_releases(template: Template) -> None:
    """Each canary goes back on a failure; what else there is, is replaced at once."""
    groups = template.resources("AWS::CodeDeploy::DeploymentGroup").values()
    aliases = [
        each
        for each in template.body["Resources"].values()
        if each["Type"] == "AWS::Lambda::Alias" and "UpdatePolicy" in each
    ]
    names = ("ingest", "receive", "list", "state", "push", "archive", "relay")

    assert len(groups) == len(aliases) == (len(names) if template.stage.canary else 0)
    assert template.stage.canary == (template.stage.name == "prod")
    for group in groups:
        ((alarm,),) = ((each["Name"]["Ref"] for each in group["AlarmConfiguration"]["Alarms"]),)
        looked_at = template.resources("AWS::CloudWatch::Alarm")[alarm]
        assert (looked_at["MetricName"], looked_at["Period"]) == ("Failures", 60)
        assert group["AutoRollbackConfiguration"]["Enabled"]
        assert group["DeploymentConfigName"].endswith("Canary10Percent5Minutes")


def test_an_address_that_lasts_is_updated_last(template: Template) -> None:
    """`stream` runs the code of `list`: where that fails as a canary, it is never touched."""
    logical, _ = template.function("stream")
    waits = as_list(template.body["Resources"][logical].get("DependsOn", []))

    assert (template.live("list") in waits) == template.stage.canary


def _versions(layer: Path, stage: Stage) -> list[str]:
    """Return the logical ids of the published versions of one function on *layer*."""
    import aws_cdk as cdk
    from aws_cdk import assertions
    from aws_cdk import aws_lambda as lambda_

    from infra.parts.function import RUNTIME, TidingsFunction

    stack = cdk.Stack(cdk.App(), "Stack")  # in a folder of its own: the CDK keeps hashes of files
    code = lambda_.Code.from_asset(str(layer))
    layers: Sequence[lambda_.ILayerVersion] = [
        lambda_.LayerVersion(stack, "Layer", code=code, compatible_runtimes=[RUNTIME])
    ]
    function = next(each for each in deployment.FUNCTIONS if each.name == "ingest")
    TidingsFunction(stack, "Made", stage=stage, function=function, layers=layers, environment={})
    found = assertions.Template.from_stack(stack)
    return [*found.find_resources("AWS::Lambda::Version")]


def test_a_release_that_changes_a_layer_alone_is_a_version(tmp_path: Path) -> None:
    """All of our code but the handlers is in layers; without it nothing of it would arrive."""
    (stage,) = choose_stages("dev")
    (tmp_path / "code.py").write_text("one = 1")
    first, again = _versions(tmp_path, stage), _versions(tmp_path, stage)
    (tmp_path / "code.py").write_text("one = 2")

    assert first == again != _versions(tmp_path, stage)
    assert len(first) == 1


def test_a_restore_is_a_version(tmp_path: Path) -> None:
    """The names of tables are parameters: the alias would lead to the old ones for ever."""
    (stage,) = choose_stages("dev")
    (tmp_path / "code.py").write_text("one = 1")
    before, *others = [
        _versions(tmp_path, replace(stage, tables=tables)) for tables in ("", "2", "3")
    ]
    assert before not in others
    assert others[0] != others[1]


def test_a_restore_is_deployed_without_a_canary_and_with_both_tables(assembly: Path) -> None:
    """Calls fail in a damaged stage; a role changes minutes before the alias of its function."""
    (prod,) = choose_stages("prod")
    restored = synthesised(replace(prod, tables="2", tables_before=""))
    assert restored.resources("AWS::CodeDeploy::DeploymentGroup") == {}
    assert "UpdatePolicy" not in str(restored.body)
    may = restored.may(restored.role_of("ingest"))
    puts = {where for what, where in may if what == "dynamodb:PutItem"}
    (now,) = (
        each for each in restored.resources("AWS::DynamoDB::Table") if each.startswith("TablesLog2")
    )
    (generated,) = (each for each in puts if each.endswith("tidings-prod-data-TablesLog*"))
    before = of_assembly(assembly, "prod")["Resources"]
    (log,) = (n for n, e in before.items() if e["Type"] == _TABLE and n.startswith("TablesLog"))
    assert fnmatch(f"table/tidings-prod-data-{log}-1ABC", generated[generated.index("table/") :])
    assert f"<{now}.Arn>" in puts


def test_what_cannot_start_from_a_snapshot_is_refused() -> None:
    """The web adapter does not support it; an unknown name is refused too."""
    from infra.parts.function import NoSnapshot, check

    (stage,) = choose_stages("dev")
    check(replace(stage, snap_start=frozenset({"ingest", "receive"})))
    for name in ("stream", "list", "injest"):
        rule = f"'{name}' cannot use SnapStart; possible are administer"
        with pytest.raises(NoSnapshot, match=rule):
            check(replace(stage, snap_start=frozenset({name})))
