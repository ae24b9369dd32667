"""Where an archive is: `s3://BUCKET/PREFIX` or `file:///FOLDER`, and the store that is there."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

FOLDER = "archive"  # where the feeds of an archive are, below its address
RULE = "must be s3://BUCKET/PREFIX or file:///FOLDER"


class WrongArchive(Exception):
    def __init__(self, url: str, rule: str = RULE) -> None:
        super().__init__(f"{url!r}: {rule}")


@dataclass(frozen=True, slots=True)
class ArchiveUrl:
    """*bucket* is empty for a folder. The keys of a feed are below `archive/{feed}/` of *path*."""

    bucket: str
    path: str


def parse(url: str) -> ArchiveUrl:
    """
    Raises:
        WrongArchive: it names neither.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise WrongArchive(url) from None
    plain = not (parts.query or parts.fragment)
    if parts.scheme == "s3" and parts.netloc and plain:
        prefix = parts.path.strip("/")
        return ArchiveUrl(parts.netloc, f"{prefix}/" if prefix else "")
    if parts.scheme == "file" and not parts.netloc and len(parts.path) > 1 and plain:
        return ArchiveUrl("", unquote(parts.path))
    raise WrongArchive(url)
