"""docs/guides/LAKE.md from its first command to its last, in their order, as a reader does."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from infra.settings import Lake
from tests.compat.oplog.wire import until
from tests.unit.lake.parts import Scene
from tidings.client.cli.main import main
from tidings.server.running import Server

PAGE = (Path(__file__).parents[3] / "docs/guides/LAKE.md").read_text()
_FENCE = r"^```{}\n(.*?)^```"
_HERE = re.compile(r"cat > (\S+) <<'END'\n(.*?)^END\n", re.DOTALL | re.MULTILINE)
_ASKS = ("post", "follow", "status")  # which need the address of the feed


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def test_the_guide_leads_from_nothing_to_a_query(
    server: Server, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of the page work one after the other in one folder, and so does its Python
    code."""
    monkeypatch.chdir(scene.folder)
    blocks = "".join(_fenced("sh"))
    for name, text in _HERE.findall(blocks):
        (scene.folder / name).write_text(text)
    told, posts = list[str](), 0
    for command in _HERE.sub("", blocks).splitlines():
        until(partial(_ends_with, server, posts))  # a server's word on itself may be a second old
        told.append(_output_of(command, server))
        posts += " post " in command

    assert sum("Sea" in each and "7" in each for each in told) == 1
    assert any("ends with page 4" in each for each in told)
    (batch,) = (each for each in map(_json, told) if each)
    assert (batch["operations"], batch["left"]) == (2, {"video": 0, "user": 0})
    assert "The sea" in told[-1] and "delete" in told[-1]

    printed = io.StringIO()
    (code,) = _fenced("python", "pyiceberg")
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert "The sea" in printed.getvalue()


def test_the_setting_of_a_stage_is_one() -> None:
    """The code is that of the page."""
    (code,) = _fenced("python", "lake=Lake(")
    given = re.search(r"lake=(Lake\(.*\)),\n\)", code, re.DOTALL)
    assert given

    assert eval(given[1], {"Lake": Lake}).minutes == 55


def _ends_with(server: Server, page: int) -> bool:
    return bool(httpx.get(f"{server.url}status").json()["head"] == page)


def _fenced(language: str, having: str = "") -> list[str]:
    found = re.findall(_FENCE.format(language), PAGE, re.DOTALL | re.MULTILINE)
    return [each for each in found if having in each]


def _output_of(command: str, server: Server) -> str:
    program, *arguments = shlex.split(command)
    assert program == ".venv/bin/tidings"
    if any(name in arguments for name in _ASKS):
        arguments += ["--url", server.url]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, (command, done.output)
    return done.stdout


def _json(text: str) -> dict[str, object]:
    try:
        found: dict[str, object] = json.loads(text)
    except ValueError:
        return {}
    return found
