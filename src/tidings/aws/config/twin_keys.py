"""
The key of a twin's DynamoDB on this machine, for the user that started it.

DynamoDB Local gives each access key a database of its own, and looks at nothing else: a random
access key is the password of everything in it. It is told in a file that only its user may read,
by the port, so that commands on the same machine find it by the address alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit

REGION = "us-east-1"  # one more thing by which DynamoDB Local tells databases apart
NOBODYS = "local"  # for a DynamoDB Local that is not a twin's; none of your own keys is sent to it

_HERE = ("127.0.0.1", "localhost", "::1")
_PRIVATE = 0o700


class Credentials(TypedDict):
    """As boto3's clients take them."""

    region_name: str
    aws_access_key_id: str
    aws_secret_access_key: str


def tell(port: int, key: str) -> None:
    """Write down that *key* opens the DynamoDB on *port*."""
    file = _file(port)
    file.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    write(file, key)


def forget(port: int) -> None:
    """The DynamoDB on *port* has ended."""
    _file(port).unlink(missing_ok=True)


def find(endpoint_url: str) -> str | None:
    """The key for the twin's DynamoDB at this address; None where there is none of this user's."""
    try:
        address = urlsplit(endpoint_url)
        here = address.hostname in _HERE and address.port is not None
        return _file(address.port or 0).read_text() if here else None
    except (OSError, ValueError):
        return None


def credentials(endpoint_url: str) -> Credentials:
    """What a client of the DynamoDB Local at this address needs."""
    key = find(endpoint_url) or NOBODYS
    return {"region_name": REGION, "aws_access_key_id": key, "aws_secret_access_key": key}


def write(file: Path, key: str) -> None:
    """Keep *key* in *file*, whole or not at all, for its user alone."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600, exist_ok=False)
    fresh.write_text(key)
    fresh.replace(file)


def _file(port: int) -> Path:
    return Path.home() / ".local" / "state" / "tidings" / "twins" / str(port)
