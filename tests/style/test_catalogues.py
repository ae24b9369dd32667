"""What is written down once: tables in the code, and the pages that print them."""

from __future__ import annotations

import re

from tidings.aws.config.deployment import CAPTURE, FUNCTIONS
from tidings.aws.config.metrics import METRICS
from tidings.aws.config.settings import SETTINGS
from tidings.web.settings import Setting

from tests.style import operations_page, source
from tests.style.source import ROOT

PROTOCOL = (ROOT / "docs/PROTOCOL.md").read_text()
SETTINGS_READ = (
    "layers/aws/python/tidings/aws/config/settings.py",
    "layers/core/python/tidings/web/settings.py",
)


def test_the_operations_page_is_the_code() -> None:
    """Its tables are the catalogues'; `python -m tests.style.operations_page` writes them."""
    page = operations_page.PAGE.read_text()

    assert operations_page.rendered(page) == page
    for setting in SETTINGS:
        assert f"`{setting.variable}`" in page
    for metric in METRICS:
        assert f"`{metric.name}`" in page


def test_every_setting_is_read() -> None:
    """One that nobody reads would lie to who sets it."""
    text = "".join((ROOT / each).read_text() for each in SETTINGS_READ)
    unread = [each.variable for each in SETTINGS if text.count(f'"{each.variable}"') < 2]

    assert unread == []


def test_every_metric_is_counted_and_every_count_is_a_metric() -> None:
    """The names in the code and the catalogue are the same."""
    core = "".join(module.text for module in source.modules(*source.PRODUCT[:2], "functions"))
    counted = set(re.findall(r"count\(\s*\"(\w+)\"", core))

    assert counted == {metric.name for metric in METRICS}


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


def test_settings_are_named_alike() -> None:
    """So that they are found in an environment, and cannot be anybody else's."""
    assert all(re.fullmatch(r"TIDINGS_[A-Z_]+", each.variable) for each in SETTINGS)
    assert all(isinstance(each, Setting) and each.meaning for each in SETTINGS)
