"""Passwords: where a command reads one, how it is sent, and where it is never seen."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.client.command import tidings
from tests.unit.client.fake_feed import Running
from tidings.client.errors import NoPassword
from tidings.client.feed_api import basic
from tidings.client.files import read_password


def _run(*arguments: str, variable: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TIDINGS_PASSWORD"}
    if variable is not None:
        environment["TIDINGS_PASSWORD"] = variable
    return tidings(*arguments, env=environment)


def _post(server: Running, *options: str, variable: str | None = None) -> str:
    """The password that a post with *options* carries."""
    done = _run("post", "--url", server.url, *options, "insert", "a", "b", variable=variable)
    assert done.returncode == 0, done.stderr
    scheme, _, encoded = server.feed.requests[-1].get("authorization", "").partition(" ")
    assert scheme in ("", "Basic")
    return base64.b64decode(encoded).decode()


def test_basic_without_a_user() -> None:
    """oplog's clients send an empty user name; any text is a password, as UTF-8."""
    assert basic("geheim") == {"Authorization": "Basic OmdlaGVpbQ=="}
    assert base64.b64decode(basic("pä:ss")["Authorization"][6:]).decode() == ":pä:ss"
    assert basic("") == {}


@pytest.mark.parametrize("content", [b"s3cret", b"s3cret\n", b"s3cret\r\n"])
def test_a_file_of_one_line(tmp_path: Path, content: bytes) -> None:
    """As an editor or `echo` leaves it."""
    (tmp_path / "password").write_bytes(content)

    assert read_password(tmp_path / "password") == "s3cret"


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb\n", b"\xff", b"x" * 2000, b"a\x00"])
def test_a_file_that_holds_no_password(tmp_path: Path, content: bytes) -> None:
    """One sentence names the file, and nothing of what is in it."""
    (tmp_path / "password").write_bytes(content)

    with pytest.raises(NoPassword, match=r"password (does not hold|is empty)"):
        read_password(tmp_path / "password")


def test_where_a_command_takes_it_from(server: Running, tmp_path: Path) -> None:
    """A file, the variable, the command line; a file that is named goes before the variable."""
    (tmp_path / "password").write_text("from file\n")
    file = ("--password-file", str(tmp_path / "password"))

    assert _post(server) == ""
    assert _post(server, *file) == ":from file"
    assert _post(server, variable="from variable") == ":from variable"
    assert _post(server, *file, variable="from variable") == ":from file"
    assert _post(server, "--password", "typed", variable="from variable") == ":typed"


@pytest.mark.parametrize("command", [["post", "insert", "a", "b"], ["tail", "--count", "1"]])
def test_two_passwords_are_one_too_many(command: list[str]) -> None:
    """Exit code 2; a file that is not there: exit code 1."""
    both = _run(*command, "--password", "typed", "--password-file", "/none")
    missing = _run(*command, "--password-file", "/none")

    assert (both.returncode, missing.returncode) == (2, 1)
    assert "cannot read /none: No such file or directory" in missing.stderr


def test_help_names_the_variable_and_never_its_value() -> None:
    """`-h` is what people paste into tickets."""
    shown = _run("tail", "--help", variable="geheim").stdout

    assert "TIDINGS_PASSWORD" in shown
    assert "geheim" not in shown


@pytest.mark.parametrize("transport", ["ws", "sse"])
def test_tail_sends_it(server: Running, transport: str) -> None:
    """HTTP Basic on Server-Sent Events, a field of the subscription on a WebSocket."""
    server.append({"event": "insert", "type": "a", "id": "b"})
    server.feed.password = "geheim"
    options = ("--url", server.url, "--from", "0", "--count", "1", "--transport", transport)
    assert _run("tail", *options, variable="geheim").returncode == 0

    if transport == "ws":
        assert server.feed.messages[0]["password"] == "geheim"
    else:
        assert server.feed.requests[0]["authorization"] == "Basic OmdlaGVpbQ=="
        assert "geheim" not in server.feed.requests[0]["path"]


def test_no_password_in_an_address() -> None:
    """An address is logged by everything it passes; the refusal does not repeat it."""
    done = _run("tail", "http://:geheim@127.0.0.1:1/")

    assert done.returncode == 2
    assert "an address holds no user or password" in done.stderr
    assert "geheim" not in done.stderr
