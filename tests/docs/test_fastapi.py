"""docs/start/FASTAPI.md works with a PostgreSQL, and prints what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_quick_starts import START, Folder, free_ports, play
from tests.unit.pipelines import server
from tests.unit.pipelines.conftest import started


@pytest.fixture
def postgresql_url() -> Iterator[str]:
    """Yield the address of a PostgreSQL that is started for the test."""
    with started(server.running) as url:
        yield url


@pytest.mark.curl
def test_fastapi_with_postgresql(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables of libpq lead to the database, as those of a reader do."""
    given = dict(each.split("=") for each in postgresql_url.split())
    names = {"PGHOST": given["host"], "PGUSER": given["user"], "PGDATABASE": given["dbname"]}
    for name, value in {**names, "PGTZ": "UTC"}.items():
        monkeypatch.setenv(name, value)

    folder = Folder(tmp_path / "page", free_ports())
    folder.path.mkdir()
    folder.link_environment()
    play((START / "FASTAPI.md").read_text(), folder)
