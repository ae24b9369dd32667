"""`tidings get`: the current operation of an object and its history, with a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from tidings.client.cli.main import main
from tidings.client.poster import Poster
from tidings.server.running import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with the versions 1 to 12 of one object, a deleted one, and others like them."""
    with Server() as running, Poster(running.url) as poster:
        for number in range(1, 13):
            poster.post([_operation("update", "video", "x1", n=number)])
            poster.post([_operation("insert", "film", "x1"), _operation("insert", "video", "x10")])
        poster.post([_operation("insert", "video", "x2"), _operation("delete", "video", "x2")])
        yield running


def _operation(event: str, kind: str, name: str, **data: object) -> dict[str, object]:
    found: dict[str, object] = {"event": event, "type": kind, "id": name}
    return {**found, "data": data} if data else found


def get(server: Server, *words: str) -> Result:
    return CliRunner().invoke(main, ["get", "--url", server.url, *words])


def test_the_latest_operation(server: Server) -> None:
    """Each field has a line, and one line of JSON has all of them."""
    shown = get(server, "video", "x1")
    document = json.loads(get(server, "video", "x1", "--json").stdout)

    assert (document["type"], document["id"], document["data"]) == ("video", "x1", {"n": 12})
    assert [line.split()[0] for line in shown.stdout.splitlines()] == [*document]
    assert 'data       {"n":12}' in shown.stdout.splitlines()


def test_a_missing_object_is_a_failure(server: Server) -> None:
    for name in ("x3", "x2"):  # x2 was deleted
        missing = get(server, "video", name)
        assert missing.exit_code == 1
        assert missing.stderr == f"Error: video/{name} is not in the feed main\n"
        assert missing.stdout == ""
    assert get(server, "video", "x3", "--history").exit_code == 1
    assert "log of the feed main" in get(server, "video", "x3", "--history").stderr


def test_the_history_has_only_this_object(server: Server) -> None:
    """Ten operations by default, the oldest first; also those of a deleted object."""
    lines = get(server, "video", "x1", "--history").stdout.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        f'update video/x1 {{"n":{number}}}' for number in range(3, 13)
    ]
    documents = map(
        json.loads, get(server, "video", "x2", "--history", "5", "--json").output.split()
    )
    assert [each["event"] for each in documents] == ["insert", "delete"]
    all_of_it = get(server, "video", "x1", "--history", "99").stdout.splitlines()
    assert len(all_of_it) == 12
