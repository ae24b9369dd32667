"""Serve the live page at `/console/`: the files of the folder `console/`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidings.http.request import Answer

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "/console"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Protections that the page itself cannot declare: other sites may not embed it.
_GUARDS = {
    "content-security-policy": "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
# One plain file name, which cannot leave the folder.
_NAME = re.compile(r"/([A-Za-z0-9_-]+(?:\.[a-z]+)*\.(?:html|js|css|svg))")


def answer(folder: Path, path: str, prefix: str = "") -> Answer | None:
    """
    Return the response to a GET of *path*, or None if the file does not exist.

    *prefix* is the path below which the deployment is served.
    """
    rest = path.removeprefix(PREFIX)
    if rest == path:
        return None
    if rest == "":
        # The page refers to its files by relative paths. A proxy may remove a prefix that is
        # unknown here; a relative address keeps it.
        at = f"{prefix}{PREFIX}" if prefix else PREFIX.removeprefix("/")
        return Answer(307, {"location": f"{at}/"})
    match = _NAME.fullmatch("/index.html" if rest == "/" else rest)
    file = folder / match[1] if match else None
    if file is None or not file.is_file():
        return None
    headers = {"content-type": _TYPES[file.suffix], "cache-control": "no-cache", **_GUARDS}
    return Answer(200, headers, file.read_text(encoding="utf-8"))
