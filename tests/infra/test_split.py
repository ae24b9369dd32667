"""A stage that is one stack becomes two: what each step's template keeps, and what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tidings.aws.config.stages import data_stack_name

from infra import last_release, settings, split, synth
from infra.settings import Stage
from infra.split import CannotSplit

pytestmark = pytest.mark.node

Body = dict[str, Any]


@pytest.fixture(params=settings.STAGES, ids=lambda stage: stage.name)
def stage(request: pytest.FixtureRequest) -> Stage:
    found: Stage = request.param
    return found


@pytest.fixture
def then(stage: Stage) -> Body:
    """What the last release that had one stack a stage deployed."""
    return last_release.template(stage)


@pytest.fixture
def today(assembly: Path, stage: Stage) -> Body:
    path = assembly / f"{data_stack_name(stage.name)}.template.json"
    found: Body = json.loads(path.read_text())
    return found


def values(noted: Body) -> dict[str, str]:
    """What CloudFormation would say that the references of the outputs are."""
    found = (name for name in noted["Outputs"] if name.startswith("Moved"))
    return {name: value(*name.removeprefix("Moved").split("Dot")) for name in found}


def value(name: str, attribute: str = "") -> str:
    """What a reference is said to be."""
    kind = "kms:{}:key/" if name.startswith("Key") else "dynamodb:{}:table/"
    arn = f"arn:aws:{kind.format('eu-west-1:123456789012')}{name}"
    return arn + attribute.removesuffix("Arn") if attribute else name.lower()


def of(body: Body, kind: str) -> set[str]:
    return {name for name, each in body["Resources"].items() if each["Type"] == kind}


def test_all_that_holds_data_moves(then: Body, today: Body) -> None:
    """Each table, bucket and key of then, and each is in the data stack today."""
    moved = split.movable(then, today)
    assert set(moved) == {name for kind in split.IDENTIFIERS for name in of(then, kind)}


def test_the_first_step_changes_nothing_that_is_there(then: Body, today: Body) -> None:
    """What moves is retained from then on; outputs and parameters are added, and that is all."""
    moved = split.movable(then, today)
    noted = split.noting(then, today, moved)
    for name, each in then["Resources"].items():
        retained = {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
        assert noted["Resources"][name] == (each | retained if name in moved else each)
    added = noted["Resources"].keys() - then["Resources"].keys()
    assert {noted["Resources"][name]["Type"] for name in added} == {"AWS::SSM::Parameter"}
    assert then["Outputs"].items() <= noted["Outputs"].items()


def test_the_second_step_lets_go_and_refers_by_value(then: Body, today: Body) -> None:
    """
    All that stays is what it was, each reference to what went by the value that it had; gone are
    what moves, the policies of its buckets, what was added for a while, and its exports.
    """
    moved = split.movable(then, today)
    noted = split.noting(then, today, moved)
    let_go = split.letting_go(noted, today, moved, values(noted))
    gone = {*moved, *of(then, "AWS::S3::BucketPolicy")}
    assert let_go["Resources"].keys() == then["Resources"].keys() - gone
    text = json.dumps({part: let_go[part] for part in ("Resources", "Outputs")})
    assert not any(f'"{name}"' in text for name in gone)
    for name, each in let_go["Resources"].items():
        assert each == by_value(then["Resources"][name], moved)
    assert {n for n, e in then["Outputs"].items() if n not in let_go["Outputs"]} <= {
        *("ForLogTable", "ForControlTable", "ForOutboxTable", "ForKeyArn")
    }
    assert let_go["Outputs"]["LogTable"]["Value"] == value("TablesLog72BABB86")


def by_value(body: Any, moved: list[str]) -> Any:
    match body:
        case {"Ref": str(name)} if name in moved:
            return value(name)
        case {"Fn::GetAtt": [str(name), str(attribute)]} if name in moved:
            return value(name, attribute)
        case dict():
            return {key: by_value(each, moved) for key, each in body.items()}
        case list():
            return [by_value(each, moved) for each in body]
    return body


def test_the_third_step_takes_up_what_was_deployed(then: Body, today: Body) -> None:
    """
    With its properties of then, so that the deploy behind it sees what differs; each retained,
    each with the property that says which one it is; and nothing else, which an import refuses.
    """
    moved = split.movable(then, today)
    noted = split.noting(then, today, moved)
    let_go = split.letting_go(noted, today, moved, values(noted))
    imported = split.importing(let_go)
    assert imported.keys() == {"Resources"}
    for name, each in imported["Resources"].items():
        assert each["Properties"] == then["Resources"][name]["Properties"]
        assert each["DeletionPolicy"] == "Retain"
        (said,) = let_go["Metadata"][split._RECORD][name]["Identifier"].items()
        assert said == (split.IDENTIFIERS[each["Type"]], value(name))
    assert set(imported["Resources"]) == set(moved)


def test_cloudformation_takes_each_template(then: Body, today: Body, tmp_path: Path) -> None:
    """What cfn-lint has to say of the three, it said of the first release."""
    moved = split.movable(then, today)
    noted = split.noting(then, today, moved)
    let_go = split.letting_go(noted, today, moved, values(noted))
    paths = []
    for number, body in enumerate((then, noted, let_go, split.importing(let_go))):
        paths.append(tmp_path / f"{number}.template.json")
        paths[-1].write_text(json.dumps(body))
    said, *others = ([line.partition(" ")[2] for line in synth.lint_findings([p])] for p in paths)
    assert [line for found in others for line in found if line not in said] == []


def test_a_table_that_would_be_made_anew_is_not_split(then: Body, today: Body) -> None:
    """By another key, another name, or because today's settings do not have it: nothing is done."""
    log = next(name for name in today["Resources"] if name.startswith("TablesLog7"))
    other = copy.deepcopy(today)
    other["Resources"][log]["Properties"]["KeySchema"][0]["AttributeName"] = "another"
    with pytest.raises(CannotSplit, match=f"{log} would be made anew: KeySchema differs"):
        split.movable(then, other)
    named = copy.deepcopy(today)
    named["Resources"][log]["Properties"]["TableName"] = "restored"
    with pytest.raises(CannotSplit, match="TableName differs"):
        split.movable(then, named)
    del other["Resources"][log]
    with pytest.raises(CannotSplit, match=f"{log} .* is not in today's template"):
        split.movable(then, other)


def test_a_bucket_of_a_producer_stays_with_it(then: Body, today: Body) -> None:
    """It is of another stack today, and what it has is gone after 30 days."""
    theirs = {"Type": "AWS::S3::Bucket", "Properties": {}}
    then["Resources"]["ProducerVideosGivenUpBucket1"] = theirs
    assert "ProducerVideosGivenUpBucket1" not in split.movable(then, today)


def test_a_reference_of_another_form_is_refused(then: Body, today: Body) -> None:
    """The CDK writes none; who has one is told before anything is let go."""
    moved = split.movable(then, today)
    log = next(name for name in moved if name.startswith("TablesLog7"))
    for odd in ({"Value": {"Fn::Sub": f"${{{log}.Arn}}"}}, {"DependsOn": [log]}):
        noted = split.noting(then, today, moved)
        noted["Resources"]["Odd"] = {"Type": "AWS::SSM::Parameter", **odd}
        with pytest.raises(CannotSplit, match=f"refers to {log}"):
            split.letting_go(noted, today, moved, values(noted))
