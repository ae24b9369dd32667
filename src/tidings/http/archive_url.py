"""Parse the address of an archive: `s3://BUCKET/PREFIX` or `file:///FOLDER`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

FOLDER = "archive"  # contains the feeds of an archive, relative to its address
RULE = "must be s3://BUCKET/PREFIX or file:///FOLDER"


class WrongArchive(Exception):
    def __init__(self, url: str, rule: str = RULE) -> None:
        super().__init__(f"{url!r}: {rule}")


@dataclass(frozen=True, slots=True)
class ArchiveUrl:
    """
    A parsed address; *bucket* is empty for a folder. Keys of a feed: `archive/{feed}/` in *path*.
    """

    bucket: str
    path: str


def parse(url: str) -> ArchiveUrl:
    """
    Parse the address *url*.

    Raises:
        WrongArchive: it has neither of the two forms.
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
