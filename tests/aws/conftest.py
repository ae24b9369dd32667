"""The tests against a deployed stage: `pytest tests/aws --stage NAME`, see
docs/operations/SANDBOX.md.

Each test verifies what the functions' own tests cannot: roles, limits, guards, gateways and metrics
of AWS. A measured value is a property of its case in the JUnit file.
"""

from __future__ import annotations

import boto3
import pytest

from tests.aws.stage import Stage
from tidings.aws.config import stages
from tidings.aws.config.stages import Addresses

NO_STAGE = "needs --stage NAME: a stage that is deployed for these tests"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests of this folder unless a stage is named."""
    if config.getoption("stage"):
        return
    for item in items:
        if item.nodeid.startswith("tests/aws/"):
            item.add_marker(pytest.mark.skip(reason=NO_STAGE))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the values that each test has measured; the JUnit file has them, too."""
    for reports in terminalreporter.stats.values():
        for each in reports:
            if getattr(each, "when", "") == "call":
                for name, value in each.user_properties:
                    terminalreporter.write_line(f"{each.location[2]}: {name}: {value}")


@pytest.fixture(scope="session")
def stage(request: pytest.FixtureRequest) -> Stage:
    """The stage; its addresses are options of the conformance suite, or outputs of its stack."""
    option = request.config.getoption
    stacks = boto3.client("cloudformation")
    if option("--base-url"):
        addresses = Addresses(option("--base-url"), option("--stream-url"), option("--ws-url"))
    else:
        addresses = stages.addresses(option("--stage"), stacks)
    return Stage(option("--stage"), addresses, str(stacks.meta.region_name))
