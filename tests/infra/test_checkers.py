"""What cdk-nag and cfn-lint say about the templates, and that they are asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidings.aws.config.stages import ACCOUNT_STACK, data_stack_name, stack_name

from infra import settings, suppressions, synth

pytestmark = pytest.mark.node


def test_nag_finds_nothing_that_nobody_accepted(assembly: Path) -> None:
    """Every finding of cdk-nag is fixed or is listed with its reason in infra/suppressions.py."""
    assert synth.nag_findings(assembly) == []


def test_nag_reports_on_every_stage(assembly: Path) -> None:
    """An empty list of findings is not for want of reports: one on each stack."""
    reports = {path.name for path in assembly.glob("*-NagReport.csv")}

    stacks = [ACCOUNT_STACK]
    for stage in settings.STAGES:
        stacks += [data_stack_name(stage.name), stack_name(stage.name)]
    assert reports == {f"AwsSolutions--{stack}-NagReport.csv" for stack in stacks}


def test_a_finding_is_reported(tmp_path: Path) -> None:
    """A resource that breaks a rule, and a rule that could not be checked, are findings."""
    report = tmp_path / "AwsSolutions--tidings-dev-NagReport.csv"
    report.write_text(
        "Rule ID,Resource ID,Compliance,Exception Reason,Rule Level,Rule Info\n"
        '"R1","one","Non-Compliant","N/A","Error","do it"\n'
        '"R2","two","UNKNOWN","N/A","Error","look"\n'
        '"R3","three","Compliant","N/A","Error","fine"\n'
    )

    assert synth.nag_findings(tmp_path) == ["R1 one: do it", "R2 two: look"]


def test_cfn_lint_finds_nothing(assembly: Path) -> None:
    """The templates are what CloudFormation takes."""
    assert synth.lint_findings(sorted(assembly.glob("*.template.json"))) == []


def test_cfn_lint_is_asked(tmp_path: Path) -> None:
    """A template that CloudFormation would refuse is reported."""
    wrong = tmp_path / "wrong.template.json"
    wrong.write_text('{"Resources": {"T": {"Type": "AWS::DynamoDB::Table", "Properties": {}}}}')

    assert synth.lint_findings([wrong])


def test_every_suppression_is_used(assembly: Path) -> None:
    """A reason that no longer explains any finding is removed."""
    reports = "".join(path.read_text() for path in assembly.glob("*-NagReport.csv"))
    unused = [each.rule for each in suppressions.ACCEPTED if each.reason not in reports]

    assert unused == []
