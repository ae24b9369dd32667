"""Every command with other encodings, with proxies, without a home, and in `| head`."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner, Result

from tests.unit.client.cli.commands import Found, every_command
from tests.unit.client.command import TIDINGS, WITHIN_S
from tests.unit.server.test_logs import unwritable
from tidings.client.cli.main import FOUND, main
from tidings.server.running import Server

TEXT = "caf\u00e9-\u4e2d\U0001f600"  # neither Latin 1 nor cp1252 has all of it
OPERATIONS = [{"event": "insert", "type": "video", "id": each} for each in ("a", TEXT, "c")]
# Options for commands that would otherwise not end, or end before they print anything.
OPTIONS: dict[str, Sequence[str]] = {
    "agent": ("--queue-dir", "FILE"),
    "serve": ("--data", "FILE"),
    "tail": ("--from", "0", "--count", "3"),
}
SLOW = {"archive compact", "pipeline run", "tables follow"}  # they load Spark, or start workers
COMMANDS = [each for each in every_command() if not each.is_group and each.name not in SLOW]
# Commands with --url that end before their first request.
NO_REQUEST = {"agent", "context set", "feeds delete", "pipeline about", "pipeline init", "snoop"}
NO_REQUEST |= {"feed set", "keys rotate", "keys show", "tables query", "tables status"}
PROXIES = {
    "HTTP_PROXY": ("127.0.0.1:1", "user:secret@127.0.0.1:1", "ftp://user:secret@127.0.0.1:1"),
    "ALL_PROXY": ("socks5://user:secret@127.0.0.1:1", "https://user:secret@127.0.0.1:x"),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Server() as server:
        httpx.post(server.url, json=OPERATIONS).raise_for_status()
        httpx.put(f"{server.url}feeds/main/consumers/c", json={"from": "oldest"})
        yield server.url


def _value(kind: click.ParamType[Any], file: str) -> str:
    if isinstance(kind, click.Choice):
        return str(kind.choices[0])
    if isinstance(kind, click.IntRange | click.FloatRange):
        return str(kind.min or 1)
    return file if isinstance(kind, click.Path | click.File) else TEXT


def run(found: Found, url: str, charset: str = "utf-8", **env: str) -> Result:
    """Run a command with a value for each option and argument that it requires."""
    file = f"{TEXT}.json"
    Path(file).write_text(TEXT, "utf-8")
    words = found.name.split()
    words += [file if word == "FILE" else word for word in OPTIONS.get(found.name, ())]
    words += ["--url", url] if "--url" in found.options else []
    words += ["--timeout", "0.2"] if "--timeout" in found.options else []
    for each in found.command.params:
        value = _value(each.type, file)
        if isinstance(each, click.Option):
            words += [each.opts[0], value] if each.required else []
        elif found.name != "tail":
            words += [value] * (each.required or each.nargs == -1)
    if found.name == "post":
        words[-1:] = ["update", "video", TEXT]
    environment = dict.fromkeys(("TIDINGS_URL", "AWS_REGION"), None) | env
    return CliRunner(charset=charset, env=environment).invoke(main, words)


def assert_no_traceback(result: Result) -> None:
    assert isinstance(result.exception, SystemExit | None), result.exc_info
    assert result.exit_code in (0, 1, 2, FOUND)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize("charset", ["latin-1", "cp1252"])
def test_an_encoding_that_lacks_a_character(url: str, charset: str) -> None:
    """The character is escaped; no command ends because of it."""
    for found in COMMANDS:
        result = run(found, url, charset)
        assert_no_traceback(result)
        if found.name in ("post", "tail"):
            assert "caf\u00e9-\\u4e2d\\U0001f600" in result.stdout_bytes.decode(charset)


def test_ascii(url: str) -> None:
    """A person and a program can read the output."""
    words = [*TIDINGS, "tail", "--from", "0", "--count", "2", url]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(words, env=environment, capture_output=True, check=True)

    assert b"video/caf\\xe9-\\u4e2d\\U0001f600\n" in shown.stdout


@pytest.mark.parametrize(
    ("variable", "value"), [(each, value) for each in PROXIES for value in PROXIES[each]]
)
def test_a_proxy_that_cannot_be_used(url: str, variable: str, value: str) -> None:
    """It is named, without its password, by each command that sends a request."""
    for found in COMMANDS:
        result = run(found, url, **{variable: value})
        assert_no_traceback(result)
        assert "secret" not in result.output
        if "--url" in found.options and found.name not in NO_REQUEST:
            assert (result.exit_code, variable in result.output) == (1, True), result.output


def test_a_user_without_a_home(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only commands that write files there need one."""

    def unknown(user: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for found in COMMANDS:
        assert_no_traceback(run(found, url, TIDINGS_URL=""))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tail", "--from", "0"], 0, ""),
        (["log", "show", "OLDEST.."], 0, ""),
        (["consume", "c"], 0, ""),
        (["post", "update", "video", "x1"], 0, ""),
        (["post", "-", "--json"], 1, "; 500 operations posted, the rest was not"),
        (["verify", "--help"], 1, ""),
    ],
)
def test_a_pipe_that_nobody_reads(url: str, words: Sequence[str], code: int, said: str) -> None:
    """It ends readers with 0; a producer learns what was posted; nothing is acknowledged."""
    oldest = httpx.get(f"{url}feeds/main/log").json()["oldest"]
    words = [word.replace("OLDEST", oldest) for word in words]
    lines = "".join(f"{json.dumps(OPERATIONS[0])}\n" for _ in range(501))
    with unwritable("closed pipe") as descriptor:
        ended = subprocess.run(
            [*TIDINGS, *words],
            input=lines.encode(),
            stdout=descriptor,
            stderr=subprocess.PIPE,
            timeout=WITHIN_S,
            env={**os.environ, "TIDINGS_URL": url},
        )
    assert (ended.returncode, said in ended.stderr.decode()) == (code, True)
    assert b"Traceback" not in ended.stderr
    consumer = httpx.get(f"{url}feeds/main/consumers/c").json()
    assert [consumer[each] for each in ("acked", "parked", "failure")] == ["", 0, None]
