"""The size, names and completeness of the code."""

from __future__ import annotations

import re
from collections import Counter
from statistics import median

from tests.style import source
from tests.style.source import CORE

FUNCTION_LINES_MAX = 50
FUNCTION_LINES_MEDIAN = 8
SAYING_NOTHING = {"utils", "util", "helpers", "helper", "common", "base", "misc", "manager"}


def test_no_function_is_too_long() -> None:
    """It must be read at one glance."""
    too_long = {
        f"{module.name}:{function.name}": lines
        for module in source.everything()
        for function in module.functions()
        if (lines := source.size(function)) > FUNCTION_LINES_MAX
    }
    assert too_long == {}


def test_functions_are_short() -> None:
    """Half of them have eight lines or fewer."""
    sizes = [
        source.size(function) for module in source.product() for function in module.functions()
    ]
    assert len(sizes) > 500
    assert median(sizes) <= FUNCTION_LINES_MEDIAN


def test_names_say_something() -> None:
    """No module is called after being a module."""
    nameless = [
        module.name
        for module in source.everything()
        if SAYING_NOTHING & set(re.split(r"[_.]", module.path.stem.lower()))
    ]
    assert nameless == []


def test_every_test_says_what_it_shows() -> None:
    """In a docstring: the behaviour, not the steps."""
    silent = [
        f"{module.name}:{function.name}"
        for module in source.modules(source.TESTS)
        for function in module.functions()
        if function.name.startswith("test_") and not source.documented(function)
    ]
    assert silent == []


def test_every_module_says_what_it_is() -> None:
    """In its first line; an `__init__.py` without code may be empty."""
    silent = [
        module.name
        for module in source.everything()
        if module.tree.body and not source.documented(module.tree)
    ]
    assert silent == []


def test_unit_tests_do_not_wait() -> None:
    """Time is an argument."""
    waiting = [module.name for module in source.modules("tests/core") if "sleep(" in module.text]

    assert waiting == []


def test_nothing_is_mocked() -> None:
    """Fakes are product code under the same contract as what they stand for."""
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
    """A constant that nobody reads is a promise that nobody keeps."""
    limits = re.findall(r"^([A-Z_]+) = ", (CORE / "limits.py").read_text(), re.M)
    words = Counter(word for module in source.product() for word in re.findall(r"\w+", module.text))

    unused = [limit for limit in limits if words[limit] < 2]
    assert unused == []
