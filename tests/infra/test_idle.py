"""
What an idle stage costs a month, by its template: `dev` below a dollar, `prod` below six.

The computation is that of docs/operations/COSTS.md.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from bench import bill, costs_page, standing
from infra import names, settings
from tests.infra.templates import Template

AT_MOST = {"dev": 1.0, "staging": 6.0, "prod": 6.0}  # dollars a month; a key is one of them


def _standing(template: Template) -> standing.Standing:
    return standing.of_template(template.body["Resources"], names.prefix(template.stage))


@pytest.mark.node
def test_an_idle_stage_costs_next_to_nothing(template: Template) -> None:
    """Alarms, dashboards, keys, what its schedules run and read, and what that writes."""
    measured = costs_page.kept()
    found = {**measured["standing"], template.stage.name: asdict(_standing(template))}
    lines = bill.idle(template.stage.name, {**measured, "standing": found})

    assert bill.total(lines) < AT_MOST[template.stage.name]
    assert {"alarms", "sweep: calls", "sweep: reads"} <= {each.what for each in lines}


@pytest.mark.node
def test_the_page_is_of_these_templates(template: Template) -> None:
    """`bench/costs.json` says what COSTS.md was made of."""
    assert costs_page.kept()["standing"][template.stage.name] == asdict(_standing(template))


def test_nothing_is_written_for_a_zero() -> None:
    """A metric is billed for each hour in which it is written, whatever it says."""
    idle = costs_page.kept()["used"]["sweep, idle"]
    assert (idle["metrics"], idle["metric_bytes"], idle["writes"]) == (0, 0, 0)


def _resource(kind: str, **properties: object) -> dict[str, object]:
    return {"Type": kind, "Properties": properties}


def test_an_alarm_counts_as_it_is_billed() -> None:
    """By metric where it looks at an expression, three times where it looks often."""
    stats = [{"MetricStat": {"Period": 300}}, {"MetricStat": {"Period": 10}}, {"Expression": "a"}]
    resources = {
        "plain": _resource("AWS::CloudWatch::Alarm", Period=300),
        "fine": _resource("AWS::CloudWatch::Alarm", Period=10),
        "math": _resource("AWS::CloudWatch::Alarm", Metrics=stats),
        "all": _resource("AWS::CloudWatch::CompositeAlarm"),
        "board": _resource("AWS::CloudWatch::Dashboard"),
        "key": _resource("AWS::KMS::Key"),
        "called": _resource("AWS::Lambda::Function", FunctionName="tidings-dev-sweep"),
        "kept": _resource(
            "AWS::Lambda::Function", MemorySize=512, SnapStart={"ApplyOn": "PublishedVersions"}
        ),
        "live": _resource("AWS::Lambda::Alias", FunctionName={"Ref": "called"}),
        "clock": _resource(
            "AWS::Scheduler::Schedule",
            ScheduleExpression="rate(5 minutes)",
            Target={"Arn": {"Ref": "live"}},
        ),
        "date": _resource("AWS::Scheduler::Schedule", ScheduleExpression="cron(0 4 ? * SUN *)"),
    }
    found = standing.of_template(resources, "tidings-dev-")

    assert found == standing.Standing(1 + 3 + 1 + 3, 1, 1, 1, 512, {"sweep": 8760})


def test_what_is_added_is_billed() -> None:
    """Each thing that a template may have raises the bill by its price; a metric, too."""
    measured = costs_page.kept()
    before = standing.Standing(**measured["standing"]["prod"])

    def dollars(after: standing.Standing) -> float:
        found = {**measured, "standing": {"prod": asdict(after)}}
        return round(bill.total(bill.idle("prod", found)) - bill.total(lines), 6)

    lines = bill.idle("prod", measured)
    assert dollars(replace(before, alarms=before.alarms + 1)) == 0.1
    assert dollars(replace(before, composites=1)) == 0.5
    assert dollars(replace(before, dashboards=before.dashboards + 1)) == 3
    assert dollars(replace(before, keys=before.keys + 1)) == 1
    assert dollars(replace(before, snapshots_mb=512)) == 1.977044  # more than prod has left of six
    used = {**measured["used"], "sweep, idle": {**measured["used"]["sweep, idle"], "metrics": 2}}
    assert bill.total(bill.idle("prod", {**measured, "used": used})) - bill.total(lines) > 0.59


def test_every_stage_is_bounded() -> None:
    """One that is added says what it may cost."""
    assert AT_MOST.keys() == {stage.name for stage in settings.STAGES}
