"""The live page at `/console/`: the files of the folder `console/`."""

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
# What a page cannot say of itself: nobody shows it within a page of theirs.
_GUARDS = {
    "content-security-policy": "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
# One plain file name: nothing that could leave the folder.
_NAME = re.compile(r"/([A-Za-z0-9_-]+(?:\.[a-z]+)*\.(?:html|js|css|svg))")


def answer(folder: Path, path: str, prefix: str = "") -> Answer | None:
    """
    Answer a GET of *path*; None if there is no such file.

    *prefix* is the path that the deployment is served below.
    """
    rest = path.removeprefix(PREFIX)
    if rest == path:
        return None
    if rest == "":
        # The page names its files relative to itself.
        # A proxy may take off a prefix that we do not know: a relative address keeps it.
        at = f"{prefix}{PREFIX}" if prefix else PREFIX.removeprefix("/")
        return Answer(307, {"location": f"{at}/"})
    match = _NAME.fullmatch("/index.html" if rest == "/" else rest)
    file = folder / match[1] if match else None
    if file is None or not file.is_file():
        return None
    headers = {"content-type": _TYPES[file.suffix], "cache-control": "no-cache", **_GUARDS}
    return Answer(200, headers, file.read_text(encoding="utf-8"))
