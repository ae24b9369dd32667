"""The options of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidings.server.feed_options import HostOptions

STAGE = "local"
PREFIX = f"tidings-{STAGE}-"
REGION = "us-east-1"
ACCOUNT = "000000000000"


@dataclass(frozen=True, slots=True)
class Options(HostOptions):
    """
    The options of `tidings local`.

    *endpoint_url* is a DynamoDB to use instead of DynamoDB Local; *data* stores the tables on disk;
    *functions* replaces the repository's handlers. *archive* is the folder of the archive; None is
    *data*, if given. *captures* are producing tables of the store.
    """

    endpoint_url: str | None = None
    dynamodb_port: int = 0
    data: Path | None = None
    archive: Path | None = None
    functions: Path | None = None
    captures: tuple[str, ...] = ()
    verbose: bool = False
