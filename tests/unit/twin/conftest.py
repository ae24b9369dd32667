"""Tests that are coroutines, and one twin with small handlers of our own."""

import asyncio
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.twin import Twin
from tidings.aws.config.deployment import FUNCTIONS

SCENARIO_S = 20.0
_HANDLERS = Path(__file__).parent / "functions"
_IDLE = "def handle(event, context):\n    return {}\n"


def pytest_itemcollected(item: pytest.Function) -> None:
    """Mark tests with a twin, or DynamoDB Local alone, as they need Java."""
    if {"twin", "store_url"} & set(item.fixturenames):
        item.add_marker("java")


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """Yield the loop of the test, its fixtures and all that they start."""
    with asyncio.Runner() as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in the loop of its fixtures."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    scenario = pyfuncitem.obj(**arguments)
    runner = pyfuncitem.funcargs["runner"]
    assert isinstance(runner, asyncio.Runner)
    runner.run(asyncio.wait_for(scenario, SCENARIO_S))
    return True


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with the existing handlers, and idle ones for the others."""
    folder = shutil.copytree(_HANDLERS, tmp_path_factory.mktemp("own") / "functions")
    for name in {each.folder for each in FUNCTIONS} - {each.name for each in folder.iterdir()}:
        (folder / name).mkdir()
        (folder / name / "handler.py").write_text(_IDLE)
    return folder


@pytest.fixture(scope="module")
def twin(functions: Path) -> Iterator[Twin]:
    with Twin("--functions", str(functions)) as running:
        yield running
