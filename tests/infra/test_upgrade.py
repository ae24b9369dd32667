"""An update from the release before this one keeps what holds data, and what clients call."""

from __future__ import annotations

from typing import Any

import pytest

from infra import last_release, lasting, remains, settings
from tests.infra.templates import Template, text

pytestmark = pytest.mark.node

API = "AWS::ApiGatewayV2::Api"


def test_what_lasts_is_still_there(template: Template) -> None:
    """Every table, bucket, key, address and topic of then has the same logical id today."""
    now = template.body["Resources"]
    then = _lasting(template.stage)

    assert then
    assert [name for name in then if now.get(name, {}).get("Type") != then[name]["Type"]] == []


def test_what_lasts_is_not_made_anew(template: Template) -> None:
    """
    Nothing differs that CloudFormation can only change by a new resource: names and keys of tables,
    the function of a URL, the protocol of an API, by its own schemas.
    """
    now = template.body["Resources"]
    differ = [
        f"{name}: {path}"
        for name, each in _lasting(template.stage).items()
        for path in lasting.create_only(each["Type"])
        if _at(each, path) != _at(now.get(name, each), path)
    ]

    assert differ == []


def test_what_lasts_is_let_go_of_as_before(template: Template) -> None:
    """A stage that retains its data has not quietly ceased to."""
    now = template.body["Resources"]
    policies = {
        name: now.get(name, each).get("DeletionPolicy")
        for name, each in _lasting(template.stage).items()
        if each.get("DeletionPolicy") in remains.RETAINED
    }

    assert set(policies.values()) <= {*remains.RETAINED}
    assert bool(policies) == template.stage.keep_data


def test_functions_keep_their_names(template: Template) -> None:
    """Grants, alarms and clocks name them, and one with a URL would get another address."""
    then = _of(template.stage, "AWS::Lambda::Function")
    now = template.resources("AWS::Lambda::Function")

    assert {each["FunctionName"] for each in then} <= {
        each["FunctionName"] for each in now.values()
    }


@pytest.mark.parametrize("kind", sorted(lasting.LASTING.keys() - {"AWS::KMS::Key"}))
def test_schemas_know_what_cannot_be_changed(kind: str) -> None:
    """Without it the test above would see nothing; all of a KMS key may be changed."""
    assert lasting.create_only(kind)


def test_the_keys_of_tables_are_seen() -> None:
    """The schema counts the key of a table among what makes a new one."""
    assert ("KeySchema",) in lasting.create_only("AWS::DynamoDB::Table")


def test_a_change_set_that_would_replace_is_refused() -> None:
    """
    Removed or replaced, of a type that lasts, for certain or by a property of its own. Everything
    else may change, and a mere reference to what changes replaces nothing, nor does a property
    that AWS changes in place, whatever an emulator thinks that it might do.
    """
    changes = [
        _change("Table", "AWS::DynamoDB::Table", "Modify", "True"),
        _change("Other", "AWS::DynamoDB::Table", "Modify", "Conditional", "Static"),
        _change("Url", "AWS::Lambda::Url", "Modify", "Conditional", "Dynamic"),
        _change(
            "Api", "AWS::ApiGatewayV2::Api", "Modify", "Conditional", "Static", "Conditionally"
        ),
        _change("Gone", "AWS::S3::Bucket", "Remove"),
        _change("Kept", "AWS::DynamoDB::Table", "Modify", "False"),
        _change("New", "AWS::S3::Bucket", "Add"),
        _change("Layer", "AWS::Lambda::LayerVersion", "Modify", "True"),
    ]

    assert lasting.replaced(changes) == [
        "Table (AWS::DynamoDB::Table)",
        "Other (AWS::DynamoDB::Table)",
        "Gone (AWS::S3::Bucket)",
    ]


def _lasting(stage: settings.Stage) -> dict[str, Any]:
    found = last_release.template(stage)["Resources"].items()
    return {name: each for name, each in found if each["Type"] in lasting.LASTING}


def _of(stage: settings.Stage, kind: str) -> list[dict[str, Any]]:
    found = last_release.template(stage)["Resources"].values()
    return [each["Properties"] for each in found if each["Type"] == kind]


def _change(
    name: str,
    kind: str,
    action: str,
    replacement: str = "",
    evaluation: str = "",
    recreation: str = "Always",
) -> dict[str, Any]:
    target = {"Name": "CorsConfiguration", "RequiresRecreation": recreation}
    details = [{"Target": target, "Evaluation": evaluation}] if evaluation else []
    found = {"LogicalResourceId": name, "ResourceType": kind, "Action": action, "Details": details}
    return {"ResourceChange": found | ({"Replacement": replacement} if replacement else {})}


def _at(resource: dict[str, Any], path: tuple[str, ...]) -> str:
    found: Any = resource.get("Properties", {})
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return text(found)
