"""`/openapi.json` and `/asyncapi.json`: read by validators, and by generators whose code is used.

The client that is generated from OpenAPI sends requests to a server. Messages that a server sent
have the types that are generated from AsyncAPI.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import jsonschema_rs
import pytest
from openapi_spec_validator import validate
from openapi_spec_validator.validation.exceptions import OpenAPIValidationError
from websockets.sync.client import connect

from tests.compat.oplog.feed import Feed, op
from tests.world import installing
from tidings.core.model.envelopes import FORMATS
from tidings.http.schemas import DIALECT, EVENTS
from tidings.server.running import Server

pytestmark = [pytest.mark.npm, pytest.mark.curl]
PATIENCE_S = 60.0
NAMES = ("openapi", "asyncapi")
GUIDE = installing.ROOT / "docs" / "guides" / "CLIENT.md"
_GENERATING = re.compile(
    r"^## Generated clients\n.*?^```sh\n(.*?)^```\n.*?^```js\n(.*?)^```\n", re.DOTALL | re.MULTILINE
)
COMPILER = {
    "strict": True,
    "target": "es2022",
    "module": "nodenext",
    "skipLibCheck": True,
    "types": [],
}


class Described(NamedTuple):
    """A folder with generated code, the documents in it, and the problems of them."""

    folder: Path
    documents: dict[str, Any]
    problems: list[dict[str, str]]
    broken: list[dict[str, str]]


@pytest.fixture(scope="module")
def described(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Described:
    """Return the documents of a server, with problems of documents that were broken on purpose."""
    node = installing.node_folder()
    generated, other = (tmp_path_factory.mktemp(name) for name in ("generated", "broken"))
    (generated / "node_modules").symlink_to(node / "node_modules")
    (generated / "package.json").write_text('{"type": "module"}')
    follow_the_guide(generated, server.url)
    served = {name: json.loads((generated / f"{name}.json").read_text()) for name in NAMES}
    for name, document in broken(served).items():
        (other / f"{name}.json").write_text(json.dumps(document))
    good, bad = json.loads(run("node", node / "describe.mjs", generated, other))
    return Described(generated, served, good, bad)


def follow_the_guide(folder: Path, url: str) -> None:
    """Run the commands of the guide in *folder*, with its program."""
    commands, program = _GENERATING.search(GUIDE.read_text()).groups()  # type: ignore[union-attr]
    (folder / "models.mjs").write_text(program)
    for command in commands.replace("http://127.0.0.1:8042/", url).splitlines():
        subprocess.run(command, shell=True, cwd=folder, timeout=PATIENCE_S * 3, check=True)


def broken(served: dict[str, Any]) -> dict[str, Any]:
    documents = copy.deepcopy(served)
    del documents["openapi"]["paths"]["/feeds/{feed}/log"]["get"]["responses"]["200"]
    documents["asyncapi"]["operations"]["receivePing"]["channel"]["$ref"] = "#/channels/none"
    return documents


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [*map(str, command)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 3,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def compiled(described: Described, name: str) -> None:
    """Compile *name* with the generated types."""
    folder = described.folder
    files = {"compilerOptions": COMPILER, "files": [name]}
    (folder / "tsconfig.json").write_text(json.dumps(files))
    run("node", folder / "node_modules" / "typescript" / "bin" / "tsc", "--project", folder)


def test_linters_and_parsers_find_no_problem(described: Described) -> None:
    assert described.problems == []
    found = {problem["rule"] for problem in described.broken}
    assert found >= {"no-unused-components", "invalid-ref"}


def test_openapi_is_valid(described: Described) -> None:
    document = copy.deepcopy(described.documents["openapi"])
    validate(document)

    del document["paths"]["/feeds/{feed}/log"]["get"]["parameters"][0]["$ref"]
    with pytest.raises(OpenAPIValidationError):
        validate(document)


def test_a_client_from_openapi_posts_lists_and_manages(
    described: Described, server: Server
) -> None:
    shutil.copyfile(installing.CLIENTS / "api_client.ts", described.folder / "api_client.ts")
    compiled(described, "api_client.ts")

    answer = json.loads(run("node", described.folder / "api_client.js", server.url, "generated"))

    assert answer.pop("refused")["field"] == "event"
    assert answer == {
        "created": [201, 30],
        "posted": 1,
        "consumer": ["search", None, ["order"]],
        "acknowledged": True,
        "entries": 1,
        "status": ["OK", 1],
        "deleted": [202, "generated"],
    }


def test_messages_have_the_types_from_asyncapi(
    described: Described, feed: Feed, server: Server
) -> None:
    """Each message is valid, and the compiler accepts it as a value of its type."""
    feed.post(op("1", "insert", parents=["p/1"], data={"n": 1}), op("2", "delete"))
    received = [*socket_messages(server, feed.name), *stream_messages(server, feed.name)]
    document = described.documents["asyncapi"]
    root = {"$schema": DIALECT, "components": document["components"]}
    lines = ['import type * as models from "./models.js";']
    for number, (name, message) in enumerate(received):
        schema = {"$ref": f"#/components/schemas/{name}"}
        jsonschema_rs.Draft202012Validator({**root, **schema}).validate(message)
        lines.append(f"export const m{number}: models.{name} = {json.dumps(message)};")
    kinds = {name for name, _ in received}
    assert kinds >= {"Subscribed", "Unsubscribed", "Pong", "Events", "Error", "Refusal"}
    assert kinds >= {*(each.schema_name for each in EVENTS.values()), "FeedObject", "StreamMark"}

    lines.append("// @ts-expect-error: the compiler refuses a message of another form")
    lines.append('export const wrong: models.Pong = {"reply": "pong", "state": "unknown"};')
    (described.folder / "received.ts").write_text("\n".join(lines))
    compiled(described, "received.ts")


def socket_messages(server: Server, feed: str) -> list[tuple[str, Any]]:
    """Return messages that a server sent over WebSockets, with the names of their schemas."""
    replies = {"subscribed": "Subscribed", "unsubscribed": "Unsubscribed", "pong": "Pong"}
    found: list[tuple[str, Any]] = []
    with connect(server.ws_url) as socket:
        socket.send(json.dumps({"action": "resume", "cursor": "none"}))
        socket.send(json.dumps({"action": "subscribe", "feed": feed, "from": "0"}))
        names: set[str] = set()
        while not names >= {"Error", "Subscribed", "Events"}:
            message = json.loads(socket.recv(timeout=PATIENCE_S))
            name = replies.get(
                message.get("reply", ""), "Events" if "events" in message else "Error"
            )
            found.append((name, message))
            names.add(name)
        for action, name in (("ping", "Pong"), ("unsubscribe", "Unsubscribed")):
            socket.send(json.dumps({"action": action}))
            while found[-1][0] != name:
                message = json.loads(socket.recv(timeout=PATIENCE_S))
                found.append((replies.get(message.get("reply", ""), "Events"), message))
    with connect(server.ws_url) as socket:
        socket.send(json.dumps({"instance": "i-1", "changeKind": {}}))
        found.append(("Refusal", socket.recv(timeout=PATIENCE_S)))
    return found


def stream_messages(server: Server, feed: str) -> list[tuple[str, Any]]:
    """Return lines and the data of blocks of a copy, in each format, up to `live`."""
    found: list[tuple[str, Any]] = []
    for name in FORMATS:
        for accept in ("text/event-stream", "application/x-ndjson"):
            headers = {"Accept": accept, "Last-Event-ID": "0"}
            url = f"{server.url}feeds/{feed}/ops?format={name}"
            with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_S) as stream:
                found += _until_live(stream, name, lines=accept.endswith("ndjson"))
    return found


def _until_live(stream: httpx.Response, name: str, *, lines: bool) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    event = ""
    for line in stream.iter_lines():
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        if not lines and not line.startswith("data: "):
            continue
        if not line:
            continue
        data = json.loads(line.removeprefix("data: "))
        is_data = name == "tidings" and not lines
        mark = "StreamMark" if event in ("reset", "live") else "FeedObject"
        found.append((mark if is_data else EVENTS[name].schema_name, data))
        if event == "live" or '"live"' in line or ".live" in line or '"op":"m"' in line:
            break
    return found
