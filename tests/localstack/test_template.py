"""A template and what is made of it, without LocalStack."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from infra.parts.sync_states import definition
from tests.localstack import jobs
from tests.localstack.template import Template, resolved
from tests.sync_machine.machine import wiring


def named(logical: str, attribute: str | None) -> str:
    return f"<{logical}>" if attribute is None else f"<{logical}.{attribute}>"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"Ref": "Log"}, "<Log>"),
        ({"Fn::GetAtt": ["Log", "Arn"]}, "<Log.Arn>"),
        ({"Fn::Join": [":", ["a", {"Ref": "Log"}]]}, "a:<Log>"),
        ({"Fn::Sub": "a-${AWS::Region}-b"}, "a-<AWS::Region>-b"),
        ({"Fn::Select": [1, {"Fn::Split": [":", {"Ref": "a:b"}]}]}, "b>"),
        ([{"x": {"Ref": "Log"}}, 7], [{"x": "<Log>"}, 7]),
    ],
    ids=[
        *("a reference", "an attribute", "a text of parts", "within a text"),
        *("a part of a text", "at any depth"),
    ],
)
def test_references_are_replaced(value: object, wanted: object) -> None:
    """By what was made."""
    assert resolved(value, named) == wanted


def test_an_asset_is_found_by_its_key(tmp_path: Path) -> None:
    """As the CDK left it, beside the template; zipped with its folders."""
    (tmp_path / "asset.1" / "tidings").mkdir(parents=True)
    (tmp_path / "asset.1" / "tidings" / "a.py").write_text("A = 1\n")
    assets = {"files": {"1": {"source": {"path": "asset.1"}}}}
    (tmp_path / "tidings-dev.assets.json").write_text(json.dumps(assets))
    archive = tmp_path / "found.zip"
    archive.write_bytes(Template(tmp_path, "dev").zipped("1.zip"))

    with ZipFile(archive) as found:
        assert found.namelist() == ["tidings/a.py"]


def test_only_the_start_of_a_job_is_another() -> None:
    """The queue gets a token and all that the job would be started with; every other step stays."""
    deployed = definition(wiring("topic", "state"))
    found = json.loads(jobs.over_queue(json.dumps(deployed), "http://queue"))
    changed = [name for name, state in found["States"].items() if state != deployed["States"][name]]

    assert changed == ["Plan"]
    plan, was = found["States"]["Plan"], deployed["States"]["Plan"]
    assert plan["Resource"] == "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
    body = plan["Parameters"]["MessageBody"]
    assert body == {"token.$": "$$.Task.Token", "job": was["Parameters"]}
    assert {"Resource", "Parameters"} == {each for each in plan if plan[each] != was[each]}
