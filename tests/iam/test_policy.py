"""The evaluator of policies itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.iam.policy import Call, Unreadable, allowed

GET = Call("s3:GetObject", "arn:aws:s3:::a/b/c", {"s3:prefix": ("b/",)})


def says(effect: str = "Allow", **parts: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": "s3:GetObject", "Resource": "*", **parts}


def without(part: str, **parts: Any) -> dict[str, Any]:
    return {k: v for k, v in says(**parts).items() if k != part}


@pytest.mark.parametrize(
    ("statements", "answer"),
    [
        ([], False),
        ([says()], True),
        ([says(Action="S3:getobject")], True),
        ([says(Action="s3:Get*")], True),
        ([says(Action=["s3:Put*", "s3:Ge?Object"])], True),
        ([says(Action="s3:GetObjectTagging")], False),
        ([says(Resource="arn:aws:s3:::a/*")], True),
        ([says(Resource="arn:aws:s3:::A/*")], False),
        ([says(Resource="arn:aws:s3:::a")], False),
        ([says(Resource="arn:aws:s3:::[a]/b/c")], False),
        ([says(), says("Deny")], False),
        ([says("Deny"), says()], False),
        ([says("Deny")], False),
        ([says(), says("Deny", Resource="arn:aws:s3:::other")], True),
        ([without("Action", NotAction="s3:PutObject")], True),
        ([without("Action", NotAction=["s3:Get*"])], False),
        ([says(), without("Action", Effect="Deny", NotAction="s3:Get*")], True),
        ([without("Resource", NotResource="arn:aws:s3:::a/*")], False),
        ([without("Resource", NotResource="arn:aws:s3:::z/*")], True),
    ],
)
def test_actions_and_resources(statements: list[dict[str, Any]], answer: bool) -> None:
    """Allowed where some statement allows and none denies; `*` and `?` are the only patterns."""
    assert allowed(statements, GET) is answer


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        ({"StringEquals": {"s3:prefix": "b/"}}, True),
        ({"StringEquals": {"S3:Prefix": ["x", "b/"]}}, True),
        ({"StringEquals": {"s3:prefix": "b"}}, False),
        ({"StringLike": {"s3:prefix": "b*"}}, True),
        ({"StringNotEquals": {"s3:prefix": "b/"}}, False),
        ({"StringNotLike": {"s3:prefix": "c*"}}, True),
        ({"StringLike": {"aws:none": "*"}}, False),
        ({"StringNotLike": {"aws:none": "*"}}, True),
        ({"StringLikeIfExists": {"aws:none": "x"}}, True),
        ({"StringLikeIfExists": {"s3:prefix": "x"}}, False),
        ({"ForAllValues:StringEquals": {"aws:none": "x"}}, True),
        ({"ForAnyValue:StringEquals": {"s3:prefix": ["x", "b/"]}}, True),
        ({"StringLike": {"s3:prefix": "b*"}, "StringEquals": {"aws:none": "x"}}, False),
    ],
)
def test_conditions(condition: dict[str, Any], answer: bool) -> None:
    """All have to hold; a key that a call does not have fails all but the opposites."""
    assert allowed([says(Condition=condition)], GET) is answer


@pytest.mark.parametrize(
    "statement",
    [
        says(Condition={"NumericLessThan": {"a": "1"}}),
        says(Principal="*"),
        says("Perhaps"),
        says(NotAction="s3:*"),
    ],
)
def test_what_is_not_understood_allows_nothing(statement: dict[str, Any]) -> None:
    """It fails the test that asked."""
    with pytest.raises(Unreadable):
        allowed([statement], GET)
