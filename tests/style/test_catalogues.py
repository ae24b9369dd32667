"""Facts that are written once: tables in the code, and the pages that print them."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from tests.style import operations_page, source
from tests.style.source import ROOT
from tidings.aws.config.deployment import CAPTURE, FUNCTIONS
from tidings.aws.config.settings import SETTINGS, Settings
from tidings.core.followers.follower import FOLLOWERS
from tidings.core.metrics import METRICS
from tidings.http.settings import Setting, Shared
from tidings.server import settings as server
from tidings.server.metrics import FAMILIES

PROTOCOL = (ROOT / "docs/PROTOCOL.md").read_text()
# The packages of each host that use its settings.
HOSTS = {
    Settings: ("src/tidings/aws", "src/tidings/assembly", "functions"),
    server.Settings: ("src/tidings/server", "src/tidings/assembly"),
}


def test_the_operations_page_is_the_code() -> None:
    """Its tables are the catalogues'; `python -m tests.style.operations_page` writes them."""
    for path in operations_page.TABLES:
        assert operations_page.rendered(path) == path.read_text()
    page = operations_page.PAGE.read_text()
    for setting in SETTINGS:
        assert f"`{setting.variable}`" in page
    for metric in METRICS:
        assert f"`{metric.name}`" in page


@pytest.mark.parametrize("settings", HOSTS, ids=["stage", "server"])
def test_every_host_uses_what_it_is_told(settings: type[Shared]) -> None:
    """A parsed setting that is not used has no effect."""
    code = "".join(module.text for module in source.modules(*HOSTS[settings]))
    used = {*re.findall(r"settings(?:\(\))?\.(\w+)", code)}
    used |= {*re.findall(r"self\.(\w+)", (ROOT / "src/tidings/http/settings.py").read_text())}

    assert [each.name for each in fields(settings) if each.name not in used] == []


def test_every_metric_is_counted_and_every_count_is_a_metric() -> None:
    """The names in the code and the catalogue are the same."""
    packages = ("src/tidings/core", "src/tidings/http", "src/tidings/assembly", "src/tidings/aws")
    code = "".join(module.text for module in source.modules(*packages, "functions"))
    counted = set(re.findall(r"count\(\s*\"(\w+)\"", code))

    assert counted == {metric.name for metric in METRICS}


def test_every_family_of_a_server_gets_samples() -> None:
    """A family that no code fills would be documented and never appear."""
    code = (ROOT / "src/tidings/server/metrics.py").read_text()
    filled = {each for each in re.findall(r'samples\[f?"([\w{}]+)"\]', code)}
    filled |= {f"tidings_database_{each}_bytes" for each in ("size", "wal")}

    assert [each.name for each in FAMILIES if each.name not in filled] == []


def test_every_error_code_is_in_the_protocol() -> None:
    """A client has to look it up somewhere; the base class is never raised."""
    code = re.compile(r"^class \w+\(\w+, code=\"(\w+)\"", re.M)
    codes = {found for module in source.product() for found in code.findall(module.text)}

    assert len(codes) >= 48
    assert sorted(code for code in codes if f"`{code}`" not in PROTOCOL) == []
    raised = re.compile(r"raise Rejected\(")
    assert [module.name for module in source.product() if raised.search(module.text)] == []


def test_the_functions_are_those_of_the_blueprint() -> None:
    """Every folder is deployed, everything deployed has its folder."""
    folders = {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}

    assert folders == {function.folder for function in (*FUNCTIONS, CAPTURE)}


def test_every_follower_runs() -> None:
    """In a function of its own, which the sweep may wake."""
    functions = {function.name: function for function in FUNCTIONS}
    followers = {f"follow-{name}": name for name in FOLLOWERS}

    assert {
        name: functions[name].environment["TIDINGS_FOLLOWER"] for name in followers
    } == followers
    assert {*followers} <= {*functions["sweep"].invokes}


def test_settings_are_named_alike() -> None:
    """So that they are found in an environment, and belong to no other program."""
    assert all(re.fullmatch(r"TIDINGS_[A-Z_]+", each.variable) for each in SETTINGS)
    assert all(isinstance(each, Setting) and each.meaning for each in SETTINGS)
