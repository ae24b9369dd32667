"""How a release reaches its callers: versions, the alias that leads to one, and canaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from infra import settings
from tests.infra.templates import Template, as_list, of_assembly, synthesised, text
from tidings.aws.config import deployment

pytestmark = pytest.mark.node
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


def _versions(layer: Path, stage: settings.Stage) -> list[str]:
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
    (stage,) = settings.choose_stages("dev")
    (tmp_path / "code.py").write_text("one = 1")
    first, again = _versions(tmp_path, stage), _versions(tmp_path, stage)
    (tmp_path / "code.py").write_text("one = 2")

    assert first == again != _versions(tmp_path, stage)
    assert len(first) == 1


def test_a_restore_is_a_version(tmp_path: Path) -> None:
    """The names of tables are parameters: the alias would lead to the old ones for ever."""
    (stage,) = settings.choose_stages("dev")
    (tmp_path / "code.py").write_text("one = 1")
    before, *others = [
        _versions(tmp_path, replace(stage, tables=tables)) for tables in ("", "2", "3")
    ]
    assert before not in others
    assert others[0] != others[1]


def test_a_restore_is_deployed_without_a_canary_and_with_both_tables(assembly: Path) -> None:
    """Calls fail in a damaged stage; a role changes minutes before the alias of its function."""
    (prod,) = settings.choose_stages("prod")
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

    (stage,) = settings.choose_stages("dev")
    check(replace(stage, snap_start=frozenset({"ingest", "receive"})))
    for name in ("stream", "list", "injest"):
        rule = f"'{name}' cannot use SnapStart; possible are administer"
        with pytest.raises(NoSnapshot, match=rule):
            check(replace(stage, snap_start=frozenset({name})))
