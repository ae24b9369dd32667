"""
Passwords of a feed: read from a file, sent with a request.

A password in a file or in the environment is hidden from other users of the machine. One on the
command line is not: they can list it.
"""

from __future__ import annotations

import base64
from pathlib import Path

from tidings.client.errors import NoPassword

_BYTES_MAX = 1024  # a longer file is not a password file, but another file given by mistake


def basic(password: str) -> dict[str, str]:
    """
    Return the HTTP Basic header, without a user: the server ignores it. Return {} without a
    password.
    """
    if not password:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(f':{password}'.encode()).decode()}"}


def from_file(path: Path) -> str:
    """
    Return the password in the file *path*, without its trailing line ending.

    Raises:
        NoPassword: the file cannot be read, or holds something else.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise NoPassword(f"cannot read {path}: {error.strerror}") from None
    password = content.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    if len(content) > _BYTES_MAX or "\ufffd" in password or not password.isprintable():
        raise NoPassword(f"{path} does not hold a password: one line of text")
    if not password:
        raise NoPassword(f"{path} is empty")
    return password
