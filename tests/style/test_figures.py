"""A figure that several documents name is that of its source, in each of them."""

from __future__ import annotations

import re

import pytest

from tests.style.source import ROOT
from tests.style.test_documents import DOCUMENTS
from tidings.core import limits

_PRICES = (ROOT / "docs/operations/COSTS.md").read_text()  # `python -m bench costs` writes it


def _idle(stage: str) -> str:
    row = re.search(rf"^\| `{stage}` \|.*\| \$([\d.]+) \|$", _PRICES, re.MULTILINE)
    assert row
    return row[1]


# By the words around it. Decisions have the figures of their time.
FIGURES = {
    r"(?:up to|1\.\.|The 1 to) ([\d,]+) operations": f"{limits.REQUEST_OPERATIONS_MAX:,}",
    r"nests at most (\d+)|nested deeper than (\d+)": str(limits.JSON_DEPTH_MAX),
    r"value of more than (\d+) KB|operation above (\d+) KB": f"{limits.OPERATION_BYTES_MAX >> 10}",
    r"string, 1\.\.(\d+) bytes, as above|than (\d+) bytes or contains": str(limits.ID_BYTES_MAX),
    r"at most (\d+) (?:concurrent |open |event )*streams": str(limits.KEY_STREAMS),
    r"operations or (\d+) MiB|body of a request \| (\d+) MiB": f"{limits.REQUEST_BYTES_MAX >> 20}",
    r"others within (\d+) seconds": f"{limits.FEED_STALE_MS // 1000}",
    r"disconnected after (\d+) seconds|part of it every (\d+) seconds": f"{limits.STALL_S:.0f}",
    r"at most (\d+); a matching|`block`\D+at most (\d+) s": str(limits.CHANGES_BLOCK_S_MAX),
    r"lease of (\d+) seconds|takes over (\d+) seconds": f"{limits.CONSUMER_LEASE_MS // 1000}",
    r"costs \[?\$([\d.]+)(?: \(`dev`\)| a month)": _idle("dev"),
    r"or \$([\d.]+) (?:\(`prod`\)|as `prod`)": _idle("prod"),
}


@pytest.mark.parametrize("words", FIGURES)
def test_documents_agree_on_a_figure(words: str) -> None:
    found = {
        (page.name, next(filter(None, each.groups())))
        for page in DOCUMENTS
        if page.parent.name != "adr"
        for each in re.finditer(words, page.read_text())
    }
    assert len({name for name, _ in found}) >= 2, "the words have changed: change the pattern, too"
    assert [each for each in found if each[1] != FIGURES[words]] == []
