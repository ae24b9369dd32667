"""The access key of a twin's DynamoDB, for the commands of the same user on this machine.

DynamoDB Local has a database for each access key and checks nothing else, so a random access key
acts as the password of its database. The key is stored in a file that only its user may read. The
name of the file is the port, so that commands on the same machine find the key by the address.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit

REGION = "us-east-1"  # DynamoDB Local also separates databases by Region
NOBODYS = "local"  # the key for a DynamoDB Local without a twin, which must get no real key

_HERE = ("127.0.0.1", "localhost", "::1")
_PRIVATE = 0o700


class Credentials(TypedDict):
    """The arguments with which boto3 creates a client of a DynamoDB Local."""

    region_name: str
    aws_access_key_id: str
    aws_secret_access_key: str


def publish(port: int, key: str) -> None:
    """Store *key* as the access key of the DynamoDB on *port*."""
    file = _file(port)
    file.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    write(file, key)


def forget(port: int) -> None:
    """Delete the stored key of *port*, after its DynamoDB has ended."""
    _file(port).unlink(missing_ok=True)


def find(endpoint_url: str) -> str | None:
    """Return the stored access key of the DynamoDB at this address; None if it is not stored."""
    try:
        address = urlsplit(endpoint_url)
        here = address.hostname in _HERE and address.port is not None
        return _file(address.port or 0).read_text() if here else None
    except (OSError, ValueError):
        return None


def credentials(endpoint_url: str) -> Credentials:
    """Return the arguments for a client of the DynamoDB Local at this address."""
    key = find(endpoint_url) or NOBODYS
    return {"region_name": REGION, "aws_access_key_id": key, "aws_secret_access_key": key}


def write(file: Path, key: str) -> None:
    """Write *key* to *file* atomically. Only the user of this process may read the file."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600, exist_ok=False)
    fresh.write_text(key)
    fresh.replace(file)


def _file(port: int) -> Path:
    return Path.home() / ".local" / "state" / "tidings" / "twins" / str(port)
