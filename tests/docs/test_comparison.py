"""docs/COMPARISON.md: each table has every system, and the figures are those that were measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/COMPARISON.md").read_text()
RESULTS = (ROOT / "bench/RESULTS.md").read_text()
SYSTEMS = ("Kafka", "NATS JetStream", "Redis Streams", "Debezium", "CouchDB", "Mercure", "Electric")
_ROW = re.compile(r"^\| (?!---|system |what )(.+?) \| (.+) \|$", re.MULTILINE)
# The name of a figure in the page, with its name in bench/RESULTS.md.
FIGURES = {
    "replay of the log to one client": "replay: rate",
    "copy of all objects to one client": "full replication: rate",
    "memory with a log of 1,000,000 operations": "memory with a log of 1,000,000",
    "1,000 event streams and 1,000 WebSockets, 200 operations a second": (
        "1,000 SSE and 1,000 WebSocket clients, 200 operations a second in requests of 10: p99"
    ),
    "from a POST to a client of Server-Sent Events": "from a POST to one SSE client: p50",
}


def _section(title: str) -> dict[str, str]:
    """Return the rows of the table below a heading: the first cell, and the others."""
    text = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return {first.strip("*"): others for first, others in _ROW.findall(text)}


def _number(text: str) -> float:
    found = re.search(r"[\d,]+(?:\.\d+)?", text)
    assert found, text
    return float(found[0].replace(",", ""))


@pytest.mark.parametrize(
    "title",
    [
        "When to choose another system",
        "Order and resuming",
        "Current state and filters",
        "Browsers and repair",
        "Operations",
    ],
)
def test_a_table_has_every_system(title: str) -> None:
    rows = _section(title)

    assert [*rows] == [*SYSTEMS, "Tidings"]
    assert all(others.strip() for others in rows.values())


def test_the_figures_were_measured() -> None:
    """Roughly: if `make bench` writes figures that differ by a quarter, change the page."""
    rows = _section("Figures for Tidings")
    measured = {first.partition(" (at most")[0]: others for first, others in _ROW.findall(RESULTS)}

    assert rows.keys() == FIGURES.keys()
    for name, source in FIGURES.items():
        assert _number(rows[name]) == pytest.approx(_number(measured[source]), rel=0.25), name
    assert _number(measured["memory when idle"]) == pytest.approx(34, rel=0.25)
    assert "a process of 34 MB" in PAGE
