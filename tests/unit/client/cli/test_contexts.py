"""Contexts: the file, the commands, and which address and password a command uses."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.contract.answering import Answer, answering
from tidings.client import contexts
from tidings.client.cli.main import main
from tidings.client.contexts import Context, Contexts, WrongContexts

SECRET = "correct horse"
LOG = Answer(200, {"oldest": None, "current": None, "end": "0"})


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "tidings" / "contexts.json"


def run(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, words, env=environment)


def done(*words: str, **environment: str) -> str:
    """Return the output of a command, which must succeed."""
    found = run(*words, **environment)
    assert found.exit_code == 0, found.output
    return found.stdout


def test_a_context_replaces_the_options(tmp_path: Path) -> None:
    """Its address, its feed and its password are used."""
    (tmp_path / "key").write_text(f"{SECRET}\n")
    with answering(LOG) as server:
        key = ("--password-file", str(tmp_path / "key"))
        done("context", "set", "prod", "--url", server.url, "--feed", "orders", *key)
        done("log", "end")

    (asked,) = server.asked
    assert asked.path == "/feeds/orders/log"
    assert _password(asked) == SECRET


def test_options_and_the_environment_have_precedence() -> None:
    """In this order: option, TIDINGS_URL, TIDINGS_CONTEXT, current context."""
    with answering(*[LOG] * 5) as other, answering(*[LOG] * 5) as server:
        done("context", "set", "one", "--url", server.url, "--feed", "one")
        done("context", "set", "two", "--url", server.url, "--feed", "two")

        done("log", "end")
        done("log", "end", TIDINGS_CONTEXT="two")
        done("log", "end", "--context", "two", TIDINGS_CONTEXT="one", TIDINGS_URL=other.url)
        done("log", "end", TIDINGS_CONTEXT="two", TIDINGS_URL=other.url)
        done("log", "end", "--url", other.url, TIDINGS_URL=server.url)
        done("log", "end", "--feed", "three")

    paths = ["/feeds/one/log", *["/feeds/two/log"] * 2, "/feeds/three/log"]
    assert [asked.path for asked in server.asked] == paths
    assert [asked.path for asked in other.asked] == ["/feeds/main/log"] * 2


def test_the_password_of_a_context_goes_only_to_its_address(tmp_path: Path) -> None:
    """Another address, of an option or of the environment, never receives it."""
    with answering(LOG, LOG) as other:
        words = ("--password-command", f"echo {SECRET}")
        done("context", "set", "prod", "--url", "http://127.0.0.1:1", *words)
        done("log", "end", "--url", other.url)
        done("log", "end", TIDINGS_URL=other.url)

    assert [_password(asked) for asked in other.asked] == ["", ""]


@pytest.mark.parametrize(
    ("command", "environment", "password"),
    [(f"echo '{SECRET}'", {}, SECRET), ("false", {"TIDINGS_PASSWORD": "other"}, "other")],
)
def test_a_command_provides_the_password(
    command: str, environment: dict[str, str], password: str
) -> None:
    """It runs without a shell, and not at all if `TIDINGS_PASSWORD` is set."""
    with answering(LOG) as server:
        done("context", "set", "prod", "--url", server.url, "--password-command", command)
        done("log", "end", **environment)

    assert _password(server.asked[0]) == password


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("false", "the password command false ended with 1"),
        ("no-such-program", "the password command no-such-program cannot be run"),
        ("true", "the output of the password command true is empty"),
        (r"printf 'a\nb'", "must contain one line of printable text"),
    ],
)
def test_a_password_command_that_fails(command: str, reason: str) -> None:
    """One sentence, exit code 1, and no request."""
    done("context", "set", "prod", "--url", "http://127.0.0.1:1", "--password-command", command)
    found = run("log", "end")

    assert found.exit_code == 1
    assert reason in found.stderr
    assert "does not answer" not in found.stderr


def test_no_output_has_a_password(tmp_path: Path, file: Path) -> None:
    """Neither the commands nor the file contain it."""
    (tmp_path / "key").write_text(SECRET)
    words = ("--password-file", str(tmp_path / "key"))
    shown = done("context", "set", "prod", "--url", "http://127.0.0.1:1", *words)
    shown += done("context", "list") + done("context", "list", "--json")
    shown += done("context", "use", "prod", "--json") + run("log", "end").output

    assert SECRET not in shown
    assert SECRET not in file.read_text()


def test_only_the_user_can_read_the_file(file: Path) -> None:
    """The mode is 0600 in a folder of 0700, also after the file had another mode."""
    done("context", "set", "a", "--url", "http://a")
    file.chmod(0o644)
    done("context", "set", "b", "--url", "http://b")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert os.listdir(file.parent) == [file.name]


def test_a_file_that_others_may_change_is_refused(file: Path) -> None:
    """They could otherwise make the user run a command."""
    done("context", "set", "a", "--url", "http://127.0.0.1:1", "--password-command", "echo x")
    file.chmod(0o622)
    found = run("log", "end")

    assert found.exit_code == 1
    assert f"other users may change {file}; run `chmod 600 {file}`" in found.stderr


def test_set_changes_the_given_fields(file: Path) -> None:
    """The others are kept; a new address or password replaces the previous kind."""
    done("context", "set", "a", "--url", "http://a", "--feed", "f", "--password-file", "/key")
    done("context", "set", "a", "--password-command", "pass show feed")
    assert contexts.load(file).named["a"] == Context(
        "http://a", feed="f", password_command=("pass", "show", "feed")
    )

    done("context", "set", "a", "--stage", "dev", "--no-password")
    assert contexts.load(file).named["a"] == Context(stage="dev", feed="f")


def test_use_and_remove() -> None:
    """The first context is the current one; without it, the default address is used."""
    done("context", "set", "a", "--url", "http://a")
    done("context", "set", "b", "--url", "http://b")
    assert _current() == ["a"]
    done("context", "use", "b")
    assert _current() == ["b"]
    done("context", "remove", "b")
    assert _current() == []


def _current() -> list[str]:
    listed = json.loads(done("context", "list", "--json"))
    return [each["name"] for each in listed if each["current"]]


def test_a_location_is_given_once() -> None:
    """A context and another address exclude each other."""
    done("context", "set", "a", "--url", "http://a")

    assert run("log", "end", "--context", "a", "--url", "http://b").exit_code == 2
    assert run("log", "end", "--context", "a", "--stage", "dev").exit_code == 2


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("[]", "must be a JSON object with the field `contexts`"),
        ("{", "Expecting"),
        ('{"contexts": {"a": {"password": "x"}}}', "the unknown field password"),
        ('{"contexts": {"a": {"url": 1}}}', "the field url of the context a must be a string"),
        ('{"contexts": {"a": {"password_command": "x"}}}', "must be a list of strings"),
        ('{"contexts": {}, "current": "a"}', "which is not one of the contexts"),
    ],
)
def test_an_invalid_file(document: str, reason: str, file: Path) -> None:
    """One sentence with the path of the file."""
    file.parent.mkdir()
    file.write_text(document)
    with pytest.raises(WrongContexts, match=reason) as raised:
        contexts.load(file)

    assert str(raised.value).startswith(f"{file}: ")


def test_the_place_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder is ignored, as XDG requires."""
    monkeypatch.setenv("HOME", str(tmp_path))
    default = tmp_path / ".config/tidings/contexts.json"

    assert contexts.path_of({}) == default
    assert contexts.path_of({"XDG_CONFIG_HOME": "relative"}) == default
    assert contexts.path_of({"XDG_CONFIG_HOME": "/x"}) == Path("/x/tidings/contexts.json")
    assert contexts.load(default) == Contexts()


@pytest.mark.parametrize(
    ("words", "environment", "source"),
    [
        (("--context", "a"), {}, "(address from the context a)"),
        ((), {}, "(address from the context a)"),
        ((), {"TIDINGS_URL": "http://127.0.0.1:1"}, "(address from TIDINGS_URL)"),
        (("--url", "http://127.0.0.1:1"), {}, ""),
    ],
)
def test_errors_name_the_address_and_its_source(
    words: tuple[str, ...], environment: dict[str, str], source: str
) -> None:
    """Unless the user has just typed the address."""
    done("context", "set", "a", "--url", "http://127.0.0.1:1")
    for command in (("log", "end"), ("status",), ("consumers", "list")):
        found = run(*command, *words, **environment)

        assert found.exit_code == 1
        assert "Error: http://127.0.0.1:1/" in found.stderr
        assert "does not answer: [Errno 111] Connection refused" in found.stderr
        assert found.stderr.rstrip().endswith(source or "refused")


def test_names_are_completed() -> None:
    """The shell completes the names of contexts."""
    done("context", "set", "prod", "--url", "http://a")
    words = {"_TIDINGS_COMPLETE": "bash_complete", "COMP_WORDS": "tidings tail --context p"}
    shown = run(**words, COMP_CWORD="3")

    assert "prod" in shown.output


def _password(asked: Any) -> str:
    import base64

    headers = {name.lower(): value for name, value in asked.headers.items()}
    given = headers.get("authorization", "Basic Og==").removeprefix("Basic ")
    return base64.b64decode(given).decode().partition(":")[2]
