"""Secrets in the environment of a deploy do not get into the deployed files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.infra.templates import Template
from tests.planted.plants import WRONG, found_below

pytestmark = pytest.mark.node


def test_nothing_that_is_deployed_holds_a_secret_of_its_surroundings(assembly: Path) -> None:
    """Neither a template nor another file contains it."""
    assert list(found_below(assembly, [WRONG])) == []


def test_no_parameter_asks_for_a_password(template: Template) -> None:
    """Passwords are set in the feed, by its owner."""
    assert [name for name in template.body["Parameters"] if "assword" in name] == []
