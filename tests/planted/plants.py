"""The planted secrets, and the forms in which they would leak."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

READ = "read pässword of the feed"
INGEST = "ingest pässword of the feed"
WRONG = "a wröng password"
HOOK = "Bearer of-the-webhook-7d1f"
UPSTREAM = "pässword of the upstream"


@dataclass(frozen=True)
class Found:
    where: str
    secret: str


def spellings(secret: str) -> set[bytes]:
    """Return it unchanged, in JSON, in a URL, and as HTTP Basic would contain it."""
    basic = base64.b64encode(f":{secret}".encode()).decode()
    texts = {secret, json.dumps(secret)[1:-1], quote(secret), quote(secret, safe=""), basic}
    return {text.encode() for text in texts}


def found_in(where: str, data: bytes, secrets: Iterable[str]) -> Iterator[Found]:
    for secret in secrets:
        if any(spelling in data for spelling in spellings(secret)):
            yield Found(where, secret)


def found_below(folder: Path, secrets: Iterable[str]) -> list[Found]:
    """Search every file below *folder*, and its name."""
    secrets = list(secrets)
    return [
        found
        for file in sorted(folder.rglob("*"))
        for data in [str(file).encode() + (file.read_bytes() if file.is_file() else b"")]
        for found in found_in(str(file.relative_to(folder)), data, secrets)
    ]
