"""What the command line can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidings.server.feed_options import FeedOptions

STAGE = "local"
PREFIX = f"tidings-{STAGE}-"
REGION = "us-east-1"
ACCOUNT = "000000000000"


@dataclass(frozen=True, slots=True)
class Options(FeedOptions):
    """
    *allow_hosts* are names that it is asked by, *allow_origins* those whose pages may ask it.
    *endpoint_url* names a DynamoDB to use instead of DynamoDB Local; *data* keeps the store
    on disk; *functions* replaces the repository's handlers; *settings* replaces defaults of
    `tidings.aws.config.settings`. *archive* is the folder of the archive; None is *data*, if there
    is one. *captures* are tables of the store that produce. *chain_from* and *chains* (FEED=URL)
    are copied, *source* says how (NAME=VALUE), *coordinator* where leaders are elected.
    """

    host: str = "127.0.0.1"
    port: int = 8042
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    endpoint_url: str | None = None
    dynamodb_port: int = 0
    data: Path | None = None
    archive: Path | None = None
    feeds: str = "main"
    functions: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    captures: tuple[str, ...] = ()
    chain_from: str | None = None
    chains: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    coordinator: str = ""
    demo_repo: Path | None = None
    demo: bool = False
    verbose: bool = False
