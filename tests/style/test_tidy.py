"""Rules of the code that no linter checks: fakes instead of mocks, reasons for limits."""

from __future__ import annotations

import re
from collections import Counter

from tests.style import source
from tests.style.source import CORE


def test_unit_tests_do_not_wait() -> None:
    """Time is an argument."""
    waiting = [
        module.name for module in source.modules("tests/unit/core") if "sleep(" in module.text
    ]

    assert waiting == []


def test_nothing_is_mocked() -> None:
    """Fakes are product code under the same contract as the stores that they replace."""
    mocking = [
        module.name
        for module in source.modules(source.TESTS)
        if re.search(r"^(from|import) (unittest\.mock|mock|pytest_mock)\b", module.text, re.M)
    ]
    assert mocking == []


def test_every_limit_has_its_reason() -> None:
    """On its line: why this number and not another."""
    text = (CORE / "limits.py").read_text()
    constants = [each for each in text.splitlines() if re.match(r"[A-Z_]+ = ", each)]

    assert len(constants) > 30
    assert [each for each in constants if not re.search(r"  # \w.{10,}", each)] == []


def test_every_limit_is_kept_somewhere() -> None:
    """A constant that is never read is a promise that is not kept."""
    limits = re.findall(r"^([A-Z_]+) = ", (CORE / "limits.py").read_text(), re.M)
    words = Counter(word for module in source.product() for word in re.findall(r"\w+", module.text))

    unused = [limit for limit in limits if words[limit] < 2]
    assert unused == []
