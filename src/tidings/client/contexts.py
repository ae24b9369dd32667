"""Contexts: names for feeds, in a file of the user, so that commands need no address.

A context has no password, but names the file that contains it, or a command that prints it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tidings.client.errors import ClientError, NoPassword
from tidings.client.files import parse_password, read_password, write_private

_FOLDER, _FILE = "tidings", "contexts.json"
_BYTES_MAX = 1024 * 1024  # a longer file is another kind of file
_COMMAND_S = 60.0  # time for a keyring to ask the user for its own password
_OTHERS_MAY_WRITE = 0o022


class WrongContexts(ClientError):
    """The file of contexts cannot be used, or does not have the requested context."""


@dataclass(frozen=True, slots=True)
class Context:
    """A feed: its *url*, or its *stage* on AWS, and its name, which is empty for the default feed.

    At most one of *password_file* and *password_command* is not empty. The command is a program
    and its arguments, and runs without a shell.
    """

    url: str = ""
    stage: str = ""
    feed: str = ""
    password_file: str = ""
    password_command: tuple[str, ...] = ()

    def password(self) -> str:
        """Return the password; "" if the context names none.

        Raises:
            NoPassword: the file or the output of the command is not a password.
        """
        if self.password_file:
            return read_password(Path(self.password_file))
        return _output(self.password_command) if self.password_command else ""

    def document(self) -> dict[str, Any]:
        """Return the fields that are not empty."""
        return {name: value for name, value in asdict(self).items() if value}


_TEXTS = ("url", "stage", "feed", "password_file")


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts by name. *current* is the name of one of them, or empty."""

    current: str = ""
    named: Mapping[str, Context] = field(default_factory=dict)

    def find(self, name: str) -> Context:
        """Return the context *name*.

        Raises:
            WrongContexts: the context does not exist.
        """
        if name not in self.named:
            known = ", ".join(sorted(self.named)) or "none"
            raise WrongContexts(f"there is no context {name!r}; the contexts are: {known}")
        return self.named[name]

    def use(self, name: str) -> Contexts:
        """Return the contexts with *name* as the current one; see `find`."""
        self.find(name)
        return replace(self, current=name)

    def put(self, name: str, context: Context) -> Contexts:
        return replace(self, named={**self.named, name: context})

    def remove(self, name: str) -> Contexts:
        """Return the contexts without *name*; see `find`."""
        self.find(name)
        left = {other: context for other, context in self.named.items() if other != name}
        return Contexts("" if self.current == name else self.current, left)


def path_of(environment: Mapping[str, str]) -> Path:
    """Return the path of the file, below XDG_CONFIG_HOME or `~/.config`."""
    folder = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not folder.is_absolute():  # the specification of XDG ignores relative paths
        folder = Path.home() / ".config"
    return folder / _FOLDER / _FILE


def load(path: Path) -> Contexts:
    """Return the contexts in the file *path*; no contexts if the file is missing.

    Raises:
        WrongContexts: the file cannot be read, is invalid, or can be changed by other users, who
            could make this user run a command.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(_BYTES_MAX)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise WrongContexts(f"cannot read {path}: {error.strerror}") from None
    if status.st_mode & _OTHERS_MAY_WRITE or status.st_uid not in (0, os.geteuid()):
        raise WrongContexts(f"other users may change {path}; run `chmod 600 {path}`")
    try:
        return _parse(json.loads(content))
    except (ValueError, TypeError) as error:
        raise WrongContexts(f"{path}: {error}") from None


def save(path: Path, contexts: Contexts) -> None:
    """Write *contexts* to the file *path*, which only this user can read.

    Raises:
        WrongContexts: the file cannot be written.
    """
    named = {name: context.document() for name, context in sorted(contexts.named.items())}
    text = json.dumps({"current": contexts.current, "contexts": named}, indent=2) + "\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, text.encode())
    except OSError as error:
        raise WrongContexts(f"cannot write {path}: {error.strerror}") from None


def _parse(document: Any) -> Contexts:
    if not isinstance(document, dict) or not isinstance(document.get("contexts"), dict):
        raise ValueError("must be a JSON object with the field `contexts`")
    named = {name: _context(name, fields) for name, fields in document["contexts"].items()}
    current = document.get("current", "")
    if current and current not in named:
        raise ValueError(f"`current` is {current!r}, which is not one of the contexts")
    return Contexts(current, named)


def _context(name: str, fields: Any) -> Context:
    if not isinstance(fields, dict):
        raise ValueError(f"the context {name} must be a JSON object")
    command = fields.get("password_command", [])
    texts = {key: value for key, value in fields.items() if key != "password_command"}
    for key, value in texts.items():
        if key not in _TEXTS:
            known = ", ".join((*_TEXTS, "password_command"))
            raise ValueError(f"the context {name} has the unknown field {key}; known: {known}")
        if not isinstance(value, str):
            raise ValueError(f"the field {key} of the context {name} must be a string")
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise ValueError(f"password_command of the context {name} must be a list of strings")
    return Context(**texts, password_command=tuple(command))


def _output(command: Sequence[str]) -> str:
    """Return the password that *command* prints."""
    import subprocess  # importing it takes longer than the rest of this module

    shown = f"the password command {command[0]}"
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_COMMAND_S, check=False)
    except subprocess.TimeoutExpired:
        raise NoPassword(f"{shown} did not end within {_COMMAND_S:.0f} s") from None
    except OSError as error:
        raise NoPassword(f"{shown} cannot be run: {error.strerror}") from None
    if done.returncode:
        raise NoPassword(f"{shown} ended with {done.returncode}")
    return parse_password(done.stdout, f"the output of {shown}")
