"""The examples of changeagent's README, unchanged but for host, port and its ids."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest

from tests.compat.changeagent.client import Changes, Parallel

POST = """curl http://localhost:9000/changes \\
-H "Content-Type: application/json" \\
-d '{"data":{"Hello":"world"}}'"""
LIST = "curl http://localhost:9000/changes"
SINCE = "curl http://localhost:9000/changes?since={}"
BLOCK = 'curl "http://localhost:9000/changes?since={}&block=120"'
BLOCK_IN_VAIN = 'curl "http://localhost:9000/changes?since={}&block=5"'
POST_TAGGED = """curl http://localhost:9000/changes \\
-H "Content-Type: application/json" \\
-d '{"tags":["testTag","testTag2"],"data":{"Hello":"world", "seq": 12}}'"""
LIST_TAGGED = 'curl "http://localhost:9000/changes?limit=10&tag=testTag"'
HEALTH = "curl http://localhost:9000/health"
MARK = "curl http://localhost:9000/health -d 'up={}' -X PUT"

pytestmark = pytest.mark.curl


def run(command: str, changes: Changes) -> Any:
    """Return the shell's output as JSON; the path is that of a feed of its own."""
    here = f"localhost:{changes.port}"
    command = command.replace("localhost:9000/changes", f"{here}{changes.path}")
    command = command.replace("localhost:9000", here)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout


def documented(found: dict[str, Any]) -> dict[str, Any]:
    """Return the documented part of a reply: without our own fields and times."""
    entries = [{k: v for k, v in each.items() if k != "_ts"} for each in found["changes"]]
    assert all(isinstance(each["_ts"], int) for each in found["changes"])
    return {"changes": entries, "atStart": found["atStart"], "atEnd": found["atEnd"]}


def test_the_examples_print_what_they_print_there(changes: Changes) -> None:
    """Post, list, list after an id, wait for news, and filter by a tag."""
    first = run(POST, changes)
    assert list(first) == ["_id"]
    hello = {"_id": first["_id"], "data": {"Hello": "world"}}
    assert documented(run(LIST, changes)) == {"changes": [hello], "atStart": True, "atEnd": True}

    more = [{"Hello": "world", "seq": seq} for seq in range(10, 13)]
    ids = [changes.post(data) for data in more]
    listed = [{"_id": each, "data": data} for each, data in zip(ids, more, strict=True)]
    found = run(SINCE.format(first["_id"]), changes)
    assert documented(found) == {"changes": listed, "atStart": False, "atEnd": True}

    waiting = Parallel(lambda: run(BLOCK.format(ids[-1]), changes))
    time.sleep(0.5)
    number = changes.post({"Hello": "World", "seq": 13})
    news = {"_id": number, "data": {"Hello": "World", "seq": 13}}
    found = documented(waiting.result())
    assert found == {"changes": [news], "atStart": False, "atEnd": True}

    tagged = run(POST_TAGGED, changes)["_id"]
    entry = {"_id": tagged, "tags": ["testTag", "testTag2"], "data": more[2]}
    found = documented(run(LIST_TAGGED, changes))
    assert found == {"changes": [entry], "atStart": True, "atEnd": True}
    found = documented(run(BLOCK_IN_VAIN.format(tagged), changes))
    assert found == {"changes": [], "atStart": False, "atEnd": True}


def test_A32_health_is_marked_and_told(shared: Changes) -> None:
    """Down and up again, by the README's commands; all other routes work in the meantime."""
    code = f"{HEALTH} -s -o /dev/null -w '%{{http_code}}'"
    assert (run(HEALTH, shared), run(code, shared)) == ("ok", "200")
    try:
        assert run(MARK.format("false"), shared) == ""
        assert (run(HEALTH, shared), run(code, shared)) == ("marked down", "503")
        assert shared.get()["atEnd"]
    finally:
        run(MARK.format("true"), shared)
    assert (run(HEALTH, shared), run(code, shared)) == ("ok", "200")
