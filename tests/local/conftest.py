"""One twin with small handlers of our own for the tests of the whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tidings.local.running import Twin

FUNCTIONS = Path(__file__).parent / "functions"


@pytest.fixture(scope="module")
def twin() -> Iterator[Twin]:
    with Twin("--functions", str(FUNCTIONS)) as running:
        yield running
