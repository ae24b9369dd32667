"""`@tidings/client`, as `make release` packs it, in Node.js against a server that is killed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infra import build_release
from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.wire import until
from tests.world import installing
from tests.world.messages import Client
from tests.world.nginx import Nginx
from tidings.client.cli.main import main
from tidings.core.version import VERSION
from tidings.server.running import Server

pytestmark = pytest.mark.npm
SOURCE = installing.ROOT / "clients" / "javascript"
TRANSPORTS = ("ws", "sse")
# Node.js 20 has a WebSocket with this option only; later releases accept it.
NODE = ("node", "--experimental-websocket", "--no-warnings")
Follow = Callable[..., Client]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file that `make release` writes."""
    folder = tmp_path_factory.mktemp("packed")
    build_release.npm_package(folder)
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def project(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the packed package is installed, with our scripts."""
    folder = tmp_path_factory.mktemp("project")
    target = folder / "node_modules" / "@tidings"
    with tarfile.open(packed) as archive:
        archive.extractall(target, filter="data")
    (target / "package").rename(target / "client")
    for name in ("follow.mjs", "types.ts"):
        shutil.copyfile(installing.CLIENTS / name, folder / name)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@pytest.fixture
def follow(project: Path, server: Server, feed: Feed) -> Follow:
    def start(
        transport: str | None, kind: str = "Feed", url: str = server.url, **options: Any
    ) -> Client:
        wanted = {"feed": feed.name, "transport": transport, "cursor": "0", **options}
        if kind == "Copy":
            del wanted["cursor"]
        script = str(project / "follow.mjs")
        return Client([*NODE, script, kind, url, json.dumps(wanted)])

    return start


def _names(client: Client) -> list[str]:
    return [each["name"] for each in client.messages if "name" in each]


def _until_named(client: Client, name: str) -> None:
    until(lambda: name in _names(client))


def _is_saved(file: Path, event_id: str) -> bool:
    """Return True if the cursor in *file* is at *event_id* or after it."""
    return file.read_text()[8:] >= event_id[8:]


def _events(client: Client) -> list[str]:
    return [each["event"] for each in client.messages if "event" in each]


def _states(client: Client) -> list[str]:
    return [each["state"] for each in client.messages if "state" in each]


def _sizes(copy: Client) -> list[int]:
    return [each["size"] for each in copy.messages if "size" in each]


def _run(project: Path, script: str) -> str:
    """Return the output of a module that imports the package."""
    command = [*NODE, "--input-type=module", "-e", script]
    return subprocess.run(
        command, cwd=project, stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout


def test_the_package_has_its_files_and_nothing_else(packed: Path) -> None:
    """It has the version of the server, no dependency and no script."""
    with tarfile.open(packed) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
        file = archive.extractfile("package/package.json")
        assert file is not None
        described = json.load(file)
    sources = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "src").iterdir()}

    assert names == {"package.json", "README.md", "LICENSE", *sources}
    assert "src/index.d.ts" in names
    assert described["version"] == VERSION
    assert not {"dependencies", "scripts", "bin"} & {*described}
    licence = (installing.ROOT / "LICENSE").read_bytes()
    assert (SOURCE / "LICENSE").read_bytes() == licence


def test_the_types_are_those_of_the_exports(project: Path) -> None:
    """`tsc --strict` accepts correct uses and rejects wrong ones; no export lacks a type."""
    tsc = installing.node_folder() / "node_modules" / "typescript" / "bin" / "tsc"
    options = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022"]
    options += ["--skipDefaultLibCheck", "true"]
    checked = subprocess.run(
        ["node", str(tsc), *options, "types.ts"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stdout == ""
    exported = _run(
        project, "console.log(Object.keys(await import('@tidings/client')).sort().join())"
    )
    typed = re.findall(
        r"^export (?:class|function|const) (\w+)", (SOURCE / "src/index.d.ts").read_text(), re.M
    )
    assert exported.strip().split(",") == sorted(typed)


def test_nothing_is_lost_when_both_sides_are_killed(
    server: Server, feed: Feed, follow: Follow, tmp_path: Path
) -> None:
    """One copy, then each operation in order: the server restarts, and then the clients."""
    feed.post(op("x0"), op("x1"))
    with ExitStack() as stack:
        clients = {
            transport: stack.enter_context(follow(transport, file=str(tmp_path / transport)))
            for transport in TRANSPORTS
        }
        until(lambda: all("live" in _events(each) for each in clients.values()))
        feed.post(op("y0"))
        until(lambda: all("y0" in _names(each) for each in clients.values()))
        server.kill()
        until(lambda: all("waiting" in _states(each) for each in clients.values()))
        server.start()
        for start in (1, 21):
            ids = feed.post(*[op(f"y{number}") for number in range(start, start + 20)])
        for transport, client in clients.items():
            _until_named(client, "y40")
            until(partial(_is_saved, tmp_path / transport, ids[-1]))
            assert _events(client)[:4] == ["reset", "insert", "insert", "live"]
            assert _names(client)[2:] == [f"y{number}" for number in range(41)]
    feed.post(op("z0"), op("y0", "delete"))
    for transport in TRANSPORTS:
        with follow(transport, file=str(tmp_path / transport)) as client:
            _until_named(client, "y0")
            assert _names(client) == ["z0", "y0"]
            assert _events(client) == ["insert", "delete"]


def test_5_7_a_restored_backup_resets(
    server: Server, feed: Feed, follow: Follow, tmp_path: Path
) -> None:
    """P5.7: operations that the backup lacks are discarded; a copy of the present state follows. A
    `Copy` reads its rows again then, and not only after its next comparison in 18 seconds.
    """
    feed.post(op("x0"))
    backup = tmp_path / "backup.db"
    done = CliRunner().invoke(main, ["backup", str(backup), *server.locator])
    assert done.exit_code == 0, done.output
    with ExitStack() as stack:
        clients = [stack.enter_context(follow(each, cursor="now")) for each in TRANSPORTS]
        copies = [stack.enter_context(follow(each, "Copy")) for each in TRANSPORTS]
        until(lambda: all("live" in _states(each) for each in (*clients, *copies)))
        feed.post(op("lost"))
        until(lambda: all(_names(each)[-1:] == ["lost"] for each in (*clients, *copies)))
        server.kill()
        for path in server.data.glob("feed.db*"):
            path.unlink()
        shutil.copy(backup, server.data / "feed.db")
        (server.data / "feed.db").chmod(0o600)
        server.start()
        feed.post(op("x1"), op("x2"))
        until(lambda: all("x2" in _names(each) and "live" in _events(each) for each in clients))
        until(lambda: all(_sizes(each)[-1:] == [3] for each in copies))
    for client in clients:
        assert _events(client)[:2] == ["insert", "reset"]
        assert {*_names(client)[1:]} == {"x0", "x1", "x2"}
    assert [each for copy in copies for each in copy.messages if "wrong" in each] == []


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_slow_consumer_receives_everything(feed: Feed, follow: Follow, transport: str) -> None:
    """It disconnects while its buffer is full, so that its memory stays bounded."""
    with follow(transport, cursor="now", bufferMax=100, eventMs=1) as client:
        until(lambda: "live" in _states(client))
        expected = [f"x{number}" for number in range(800)]
        for start in range(0, len(expected), 400):
            feed.post(*[op(name, data="x" * 500) for name in expected[start : start + 400]])
        until(lambda: len(_names(client)) >= len(expected))
    assert _names(client) == expected
    assert "paused" in _states(client)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_wrong_password_is_final(
    server: Server, feed: Feed, follow: Follow, transport: str
) -> None:
    """The error has the code of the protocol; the right password opens the feed."""
    command = ["feed", "password", "read", "--generate", "--feed", feed.name, *server.locator]
    password = CliRunner().invoke(main, command).stdout.strip()
    with follow(transport, password="wrong") as client:
        until(lambda: not client.runs)
    status = {"ws": 0, "sse": 401}[transport]
    assert client.messages[-1] == {"error": "Refused", "code": "wrong_password", "status": status}
    right = {"password": password}
    with follow(transport, **right) as client, follow(transport, "Copy", **right) as copy:
        until(lambda: "live" in _events(client) and "live" in _events(copy))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_20_a_copy_of_a_type_follows_its_deletion(
    server: Server, feed: Feed, follow: Follow, transport: str
) -> None:
    """P20.4: its objects are deleted while the server is gone; the checksums agree afterwards."""
    names = [f"x{number}" for number in range(200)]
    feed.post(*[op(name) for name in names], op("c", type="channel"))
    with follow(transport, "Copy", types=["video"], checkMs=100) as copy:
        until(lambda: _sizes(copy)[-1:] == [200])
        server.kill()
        server.start()
        feed.post(*[op(name, "delete") for name in names], op("c", "update", type="channel"))
        until(lambda: _sizes(copy)[-1:] == [0])
        feed.post(op("new"))
        until(lambda: _sizes(copy)[-1:] == [1])
    assert [each for each in copy.messages if "wrong" in each] == []
    assert "c" not in _names(copy)


@pytest.mark.nginx
@pytest.mark.parametrize("kind", ["Feed", "Copy"])
def test_a_stream_is_read_where_websockets_do_not_pass(
    server: Server, nginx: Nginx, feed: Feed, follow: Follow, kind: str
) -> None:
    """The proxy does not forward `Upgrade`; a stage has its streams at an address of their own."""
    elsewhere = {"wsUrl": nginx.url("plain").replace("http", "ws", 1) + "ws"}
    with ExitStack() as stack:
        clients = [
            stack.enter_context(follow(None, kind, **options))
            for options in ({"url": nginx.url("plain")}, {**elsewhere, "streamUrl": server.url})
        ]
        others = [
            stack.enter_context(follow(transport, kind, **options))
            for transport, options in (("ws", {"url": nginx.url("plain")}), (None, elsewhere))
        ]
        until(lambda: all("live" in _events(each) for each in clients))
        until(lambda: all(_states(each).count("waiting") > 1 for each in others))
        feed.post(op("new"))
        until(lambda: all(_names(each)[-1:] == ["new"] for each in clients))
    assert [name for each in others for name in _names(each)] == []


@pytest.mark.parametrize("kind", ["Feed", "Copy"])
@pytest.mark.parametrize("transport", ["ws", "sse", None])
def test_a_wrong_address_ends_with_an_error(
    server: Server, follow: Follow, transport: str | None, kind: str
) -> None:
    for options in ({"url": f"{server.url}nowhere"}, {"feed": "missing"}):
        with follow(transport, kind, **options) as client:
            until(lambda client=client: not client.runs)  # type: ignore[misc]
        assert client.messages[-1]["error"] == "Refused"
        assert client.messages[-1]["code"] in ("unknown_path", "unknown_feed")


@pytest.mark.nginx
def test_a_listener_asks_why_a_handshake_failed(
    server: Server, nginx: Nginx, feed: Feed, project: Path
) -> None:
    """A wrong address ends it; where WebSockets do not pass, it says so and tries again."""
    program = f"""
        import {{ Listener }} from "@tidings/client";
        const options = {{ instance: "i", service: "s", resources: {{ vm: [] }}, retries: 1,
                           minTimeout: 1, feed: "{feed.name}" }};
        for (const url of ["{nginx.url("plain")}nowhere", "{nginx.url("plain")}", "http://127.0.0.1:1"])
          try {{
            for await (const {{ reason }} of new Listener(url, options)) console.log(reason);
          }} catch (error) {{
            console.log(error.message);
          }}"""
    said = _run(project, program).splitlines()
    failed, passes = (
        "the connection failed",
        "WebSockets do not pass, or the server has just started",
    )
    assert said == ["the server answered 404", passes, "Backoff failed", failed, "Backoff failed"]


def test_an_aborted_signal_ends_the_loop(feed: Feed, follow: Follow) -> None:
    """With its reason; the process ends, because nothing is left open."""
    feed.post(*[op(f"x{number}") for number in range(9)])
    with follow("ws", abortAfter=3) as client:
        until(lambda: not client.runs)
    assert len(_names(client)) == 2
    assert client.messages[-1]["error"] == "AbortError"


def test_4_5_a_post_is_appended_once(server: Server, feed: Feed, project: Path) -> None:
    """P4.5: a request waits for the server, and a repetition has the same ids."""
    server.kill()
    program = f"""
        import {{ post }} from "@tidings/client";
        const options = {{ feed: "{feed.name}", idempotencyKey: "k1" }};
        const operations = [{{ event: "insert", type: "video", id: "é" }},
                            {{ event: "delete", type: "video", id: "y" }}];
        const ids = [];
        console.log("begins");
        for (const _ of [1, 2]) ids.push(await post("{server.url}", operations, options));
        await post("{server.url}", {{ event: "no" }}, options).catch((e) => ids.push(e.code));
        console.log(JSON.stringify(ids));"""
    command = [*NODE, "--input-type=module", "-e", program]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        server.start()
        first, second, refused = json.loads(process.stdout.readline())
    assert first == second != []
    assert refused == "invalid_operation"
    with feed.listening("0") as listener:
        assert [each.name for each in listener.until("live")] == ["reset", "insert", "live"]


def test_the_examples_of_the_readme_run(server: Server, project: Path) -> None:
    """Each block, with the address of this server; a loop runs until its first line."""
    blocks = re.findall(r"```js\n(.*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    printed = []
    for block in blocks:
        program = block.replace("http://127.0.0.1:8042", server.url)
        command = [*NODE, "--input-type=module", "-e", program]
        with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            printed.append(process.stdout.readline())
            process.kill()
    assert printed[0] == "forget everything\n"
    assert printed[1].startswith("live ")
    assert re.fullmatch(r"[0-9a-f]{24}\n", printed[2])


def test_integers_are_not_rounded(server: Server, feed: Feed, project: Path) -> None:
    """Those beyond 2^53 are BigInt, in each direction and with each transport."""
    numbers = [2**53 - 1, 2**53 + 1, -(10**30), 5, 12345678901234567890123]
    text = f'\\"{2**60}, ' + "\\\\"
    literals = ", ".join(f"{number}n" for number in numbers)
    program = f"""
        import {{ Copy, Feed, post }} from "@tidings/client";
        const options = {{ feed: "{feed.name}", cursor: "0" }};
        const data = {{ numbers: [{literals}], text: `{text}` }};
        await post("{server.url}", {{ event: "insert", type: "video", id: "x", data }}, options);
        for (const transport of ["ws", "sse"]) {{
          for await (const each of new Feed("{server.url}", {{ ...options, transport }}))
            if (each.event === "insert") {{ show(each.data); break; }}
        }}
        const copy = new Copy("{server.url}", {{ feed: "{feed.name}" }});
        for await (const each of copy) {{ show(copy.get("video", "x")); break; }}
        function show({{ data }}) {{
          console.log(data.numbers.map((each) => typeof each + each).join(), data.text);
        }}"""
    kinds = [f"{'bigint' if abs(each) >= 2**53 else 'number'}{each}" for each in numbers]

    assert _run(project, program).splitlines() == [f'{",".join(kinds)} "{2**60}, \\'] * 3


def test_cookies_are_sent_only_if_an_option_says_so(project: Path) -> None:
    """By each kind of request: a wrong value is refused at once."""
    program = """
        import * as all from "@tidings/client";
        let modes = new Set();
        globalThis.fetch = async (url, { credentials }) => {
          modes.add(credentials);
          return new Response('{"error":{"code":"no","message":"no"}}', { status: 403 });
        };
        const ends = async (loop) => { for await (const each of loop) if (each.refused) break; };
        globalThis.WebSocket = class { constructor() { setTimeout(() => {
          this.onopen(); this.onmessage({ data: '{"bootstrapRoute":"/feeds/a/objects"}' });
        }); } send() {} close() {} };
        const url = "http://a", listening = { resources: { vm: [] }, retries: 0 };
        for (const options of [{}, { credentials: "same-origin" }, { credentials: "include" }]) {
          modes = new Set();
          const sse = new all.Feed(url, { transport: "sse", ...options });
          for (const each of [sse, new all.Copy(url, options)]) await ends(each).catch(() => {});
          await all.post(url, [], options).catch(() => {});
          await ends(new all.Listener(url, { ...listening, ...options })).catch(() => {});
          console.log(...modes);
        }
        const wrong = { ...listening, credentials: "all" };
        for (const make of [() => new all.Feed(url, wrong), () => new all.Copy(url, wrong),
          () => new all.Listener(url, wrong)]) try { make(); } catch (e) { console.log(e.name); }
        await all.post(url, [], wrong).catch((e) => console.log(e.name));"""
    assert _run(project, program).split() == [
        *("omit", "same-origin", "include"),
        *["TypeError"] * 4,
    ]


def test_an_answer_that_is_not_from_a_feed_is_asked_for_again(project: Path) -> None:
    """A proxy may answer 200 with a page; a copy waits, and does not end or loop."""
    program = """
        import { Copy } from "@tidings/client";
        for (const text of ["<html>", "", "{}", "[]", "null", "1"]) {
          globalThis.fetch = async () => new Response(text);
          const copy = new Copy("http://a", { onState: (state, ms, reason) => {
            console.log(state, reason);
            copy.close();
          } });
          for await (const each of copy) console.log(each);
        }
        process.exit();"""
    reason = "waiting the answer is not from a feed; check the address\n"
    assert _run(project, program) == reason * 6


def test_a_runtime_that_lacks_something(project: Path) -> None:
    """The error names it; CommonJS can load the package."""
    program = """
        import { createRequire } from "node:module";
        delete globalThis.WebSocket;
        const all = createRequire(process.cwd() + "/x.js")("@tidings/client");
        const listening = { resources: { vm: [] } };
        for (const make of [() => new all.Listener("http://a", listening),
          () => new all.Feed("http://a", { transport: "ws" }),
          () => new all.LocalStorageStore("cursor")])
          try { make(); } catch (error) { console.log(error.name, error.message); }
        new all.Listener("http://a", { ...listening, WebSocket: class {} });"""
    assert _run(project, program).splitlines() == [
        "TypeError this runtime has no WebSocket; give one as the option WebSocket",
        'TypeError this runtime has no WebSocket; use the transport "sse"',
        "TypeError this runtime has no localStorage; use another store",
    ]
