"""What the command line can say."""

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
    *endpoint_url* names a DynamoDB to use instead of DynamoDB Local; *data* keeps the store
    on disk; *functions* replaces the repository's handlers. *archive* is the folder of the archive;
    None is *data*, if there is one. *captures* are tables of the store that produce.
    """

    endpoint_url: str | None = None
    dynamodb_port: int = 0
    data: Path | None = None
    archive: Path | None = None
    functions: Path | None = None
    captures: tuple[str, ...] = ()
    verbose: bool = False
