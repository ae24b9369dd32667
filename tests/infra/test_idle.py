"""What an idle stage costs a month, by its template: `dev` below a dollar, `prod` below six.

The computation is that of docs/operations/COSTS.md.
"""

from __future__ import annotations

from dataclasses import asdict

import pytest

from bench import bill, costs_page
from infra import names
from tests.infra.templates import Template

AT_MOST = {"dev": 1.0, "staging": 6.0, "prod": 6.0}  # dollars a month; a key is one of them


def _idle_resources(template: Template) -> bill.FixedCosts:
    return bill.of_template(template.body["Resources"], names.prefix(template.stage))


@pytest.mark.node
def test_an_idle_stage_costs_next_to_nothing(template: Template) -> None:
    """Alarms, dashboards, keys, what its schedules run and read, and what that writes."""
    measured = costs_page.kept()
    found = {**measured["standing"], template.stage.name: asdict(_idle_resources(template))}
    lines = bill.idle(template.stage.name, {**measured, "standing": found})

    assert bill.total(lines) < AT_MOST[template.stage.name]
    assert {"alarms", "sweep: calls", "sweep: reads"} <= {each.what for each in lines}


@pytest.mark.node
def test_the_page_is_of_these_templates(template: Template) -> None:
    """`bench/costs.json` says what COSTS.md was made of."""
    assert costs_page.kept()["standing"][template.stage.name] == asdict(_idle_resources(template))
