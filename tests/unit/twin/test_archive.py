"""The archive that the functions of a twin use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.twin import environment
from tests.twin.options import Options
from tidings.aws.config.deployment import FUNCTIONS


def archive_address(options: Options) -> str | None:
    """Return the archive's address in the environment of the functions, which is equal for all."""
    places = environment.Endpoints("http://127.0.0.1:1", "http://127.0.0.1:2", "")
    found = {
        environment.program(function, options, places).environment.get("TIDINGS_ARCHIVE")
        for function in FUNCTIONS
    }
    assert len(found) == 1
    return found.pop()


def test_it_is_beside_the_feed_or_where_it_is_put(tmp_path: Path) -> None:
    """A twin without a data folder has no archive; a setting overrides the options."""
    data, other = tmp_path / "a b", tmp_path / "c"

    assert archive_address(Options()) is None
    assert archive_address(Options(data=data)) == data.as_uri()
    assert (
        archive_address(Options(data=data, archive=other))
        == archive_address(Options(archive=other))
        == other.as_uri()
    )
    assert archive_address(Options(data=data, settings={"TIDINGS_ARCHIVE": ""})) == ""


def test_a_relative_folder_is_the_one_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions run elsewhere."""
    monkeypatch.chdir(tmp_path)

    assert archive_address(Options(data=Path("feed"))) == (tmp_path / "feed").as_uri()
