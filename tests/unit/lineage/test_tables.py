"""The lineage events of `tidings tables follow` about its tables."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.wire import until
from tests.unit.lake.conftest import scene
from tests.unit.lake.parts import Scene
from tests.unit.lineage.receiver import Receiver
from tidings.client import Poster
from tidings.client.cli.main import main
from tidings.lineage import runs
from tidings.server.running import Server

__all__ = ["scene"]
COLUMNS = {"video": {"title": "string", "views": {"key": "viewCount", "type": "bigint"}}}


def follow(server: Server, folder: Path) -> Result:
    (folder / "columns.json").write_text(json.dumps(COLUMNS))
    files = ["--table", str(folder / "lake"), "--columns", str(folder / "columns.json")]
    options = [*files, "--once", "--json", "--lineage", "--url", server.url]
    return CliRunner().invoke(main, ["tables", "follow", *options])


def test_a_run_tells_each_table_with_its_columns(
    scene: Scene, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run counts only its own rows. A batch is reported if a report is due."""
    monkeypatch.setattr(runs, "RUNNING_S", 0)
    with Server() as server:
        with Poster(server.url) as poster:
            video = {"event": "insert", "type": "video", "data": {"title": "Sea", "viewCount": 7}}
            poster.post([{**video, "id": name} for name in ("a", "b")])
        until(lambda: _end(server) == 1)
        first = follow(server, scene.folder)
        assert first.exit_code == 0, first.output
        with Poster(server.url) as poster:
            poster.post([{**video, "id": "c"}])
        until(lambda: _end(server) == 2)
        second = follow(server, scene.folder)
    assert second.exit_code == 0, second.output

    assert receiver.states == 2 * ["START", "RUNNING", "COMPLETE"]
    ended = receiver.events[2]
    assert ended["job"]["name"] == "tidings.tables.main"
    assert [each["namespace"] for each in ended["inputs"]] == [server.url.rstrip("/")]
    lake = scene.folder / "lake"
    names = [str(lake / "tidings" / f"main_{kind}") for kind in ("history", "latest", "type_video")]
    for event in receiver.events:
        assert [each["name"] for each in event["outputs"]] == names
        assert {each["namespace"] for each in event["outputs"]} == {"file"}
    assert [_rows(each) for each in ended["outputs"]] == [2, 2, 2]
    assert [_rows(each) for each in receiver.events[-1]["outputs"]] == [1, 1, 1]
    table = ended["outputs"][-1]["facets"]
    kinds = {each["name"]: each["type"] for each in table["schema"]["fields"]}
    wanted = {"id": "string", "parents": "list<string>", "title": "string", "views": "long"}
    assert wanted.items() <= kinds.items()
    (known,) = table["symlinks"]["identifiers"]
    assert known["name"] == "tidings.main_type_video"


def test_one_that_is_stopped_fails(scene: Scene, receiver: Receiver) -> None:
    """The tables belong to another feed: the event has the error of the guard, and the rows."""
    with Server() as server:
        with Poster(server.url) as poster:
            poster.post([{"event": "insert", "type": "video", "id": "a"}])
        until(lambda: _end(server) == 1)
        assert follow(server, scene.folder).exit_code == 0
    with Server() as other:
        assert follow(other, scene.folder).exit_code == 3
    ended = receiver.events[-1]
    assert ended["eventType"] == "FAIL"
    assert "the tables are of another feed" in ended["run"]["facets"]["errorMessage"]["message"]
    assert [_rows(each) for each in ended["outputs"]] == [0, 0, 0]


def _end(server: Server) -> int:
    """Return the last page that a reader over HTTP sees: the status of a server may be a second
    old."""
    return int(httpx.get(f"{server.url}status").json()["head"])


def _rows(output: dict[str, dict[str, dict[str, int]]]) -> int:
    return output["outputFacets"]["outputStatistics"]["rowCount"]
