"""`python -m bench serve`: its compiled clients receive what a server sends, and count it."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from bench import serve
from tidings.core.model.cursors import START

pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") and shutil.which("wrk")), reason="needs the packages of bench"
)


@pytest.fixture
def bench(tmp_path: Path) -> serve._Bench:
    serve.make_tools(tmp_path)
    return serve._Bench(tmp_path, None)


def test_clients_receive_each_event(bench: serve._Bench) -> None:
    """Over both transports, live and again from the start."""
    with bench.servers() as (server,):
        delivered = server.deliver(2, 3, 20, 200, 5)
        assert delivered.count == 20 * 5 and 0 < delivered.p50_ms <= delivered.p99_ms < math.inf
        assert server.replay(START.encode(), 20).count == 20


def test_posts_and_the_unit(bench: serve._Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A post costs more than the app that does nothing."""
    monkeypatch.setattr(serve, "_SECONDS", 1.0)
    with bench.servers() as (server,):
        assert server.post(4).each_s > bench.unit_s() > 0
