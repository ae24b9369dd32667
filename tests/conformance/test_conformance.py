"""docs/PROTOCOL.md as cases, against a running feed and nothing but its wire."""

from __future__ import annotations

import pytest

from tests.conformance.catalogue import Case, cases
from tests.conformance.runner import hold
from tests.conformance.target import Target


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_law(case: Case, target: Target) -> None:
    """The target keeps the law of the case."""
    missing = case.needs - set(target.transports)
    reason = target.skip_reason(case.rule) or (missing and f"without {', '.join(missing)}")
    if reason:
        pytest.skip(reason)
    hold(target.in_section(case.section), case)
