"""No secret that lies in the environment of who deploys gets into what is deployed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.infra.templates import Template
from tests.planted.plants import WRONG, found_below

pytestmark = pytest.mark.node


def test_nothing_that_is_deployed_holds_a_secret_of_its_surroundings(assembly: Path) -> None:
    """Neither a template nor a file beside it."""
    assert list(found_below(assembly, [WRONG])) == []


def test_no_parameter_asks_for_a_password(template: Template) -> None:
    """Passwords are set in the feed, by who owns it."""
    assert [name for name in template.body["Parameters"] if "assword" in name] == []
