"""Events that are read over HTTP, as lines of the log."""

from __future__ import annotations

import pytest

from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.model.events import content_of
from tidings.core.model.operations import ERASED_MARK, line_from
from tidings.spark.http_backend import _line

NOW = 1_763_000_000_000
HEAD = '{"event":"delete","timestamp":"2026-01-01T00:00:00Z","parents":[],"type":"video"'


@pytest.mark.parametrize(
    "line",
    [
        line_from({"event": "insert", "type": "video", "id": "x", "data": {"a": 1}}, now_ms=NOW),
        encode_entry(Entry("video", "x", "ann", 'asked","erase":true}', ("p",)), now_ms=NOW),
        f'{HEAD},"id":"erased:3"{ERASED_MARK}',
    ],
    ids=["operation", "erasure", "erased"],
)
def test_a_line_is_that_of_the_log(line: str) -> None:
    """Erasures keep their marks, with and without the address of the object."""
    name, data = content_of(line, erasures=True)

    assert _line(name, data) == line
    assert _line(name, f'{data[:-1]},"ref":"https://a.example/x"}}') == line
