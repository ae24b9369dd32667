"""What the suite's own report and headers of an answer say."""

from __future__ import annotations

from xml.etree import ElementTree

import httpx
import pytest

from infra.sandbox import reading
from infra.sandbox.steps import NotSo

_PASSED = (
    "<testcase name='a'/><testcase name='b'><skipped/></testcase>"
    "<testcase name='test_law[twin-4.1]'><skipped/></testcase>"
)


def _suite(cases: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


def test_a_suite_that_passed_is_counted() -> None:
    """What was left out before it began is left out, too."""
    assert reading.of_suite(_suite(_PASSED), 3) == {"passed": 1, "failed": 0, "left out": 4}


@pytest.mark.parametrize("kind", ["failure", "error"])
def test_cases_that_failed_are_named(kind: str) -> None:
    """And counted."""
    failed = f"<testcase name='test_law[server-4.6-path]'><{kind}/></testcase>"
    with pytest.raises(NotSo, match=r"1 of 3 cases: test_law\[server-4.6-path\]") as seen:
        reading.of_suite(_suite(_PASSED + failed), 0)
    assert seen.value.figures["failed"] == 1


def test_a_suite_that_found_nothing_has_not_passed() -> None:
    """pytest could not collect it."""
    with pytest.raises(NotSo):
        reading.of_suite(_suite(""), 0)


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ([("access-control-allow-origin", "*")], "does not expose"),
        ([("access-control-expose-headers", "Allow,Last-Event-ID,Retry-After")], "allows []"),
        (
            [
                ("access-control-allow-origin", "*"),
                ("access-control-allow-origin", "*"),
                ("access-control-expose-headers", "allow, last-event-id, retry-after"),
            ],
            "allows ['*', '*']",
        ),
    ],
    ids=["hidden", "nobody", "twice"],
)
def test_headers_that_stop_a_browser_are_named(
    headers: list[tuple[str, str]], problem: str
) -> None:
    """A header that comes twice is refused by browsers as one that is missing."""
    problems = reading.told(httpx.Response(200, headers=headers), "the API", {})
    assert len(problems) == 1
    assert problem in problems[0]
