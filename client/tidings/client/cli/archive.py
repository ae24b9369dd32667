"""`tidings archive`: what is kept of a feed for ever."""

from __future__ import annotations

import click
from tidings.client.cli.main import EXIT_CODES, LazyGroup, Subcommand

_LAKE = "tidings.lake.command"
_NEEDED = ("boto3", "pyspark")


_LOOKED_AT = "tidings.operate.archive_command"

_COMMANDS = {
    "status": Subcommand(
        _LOOKED_AT,
        "status",
        "Show what is there, and how far its follower is.",
        extra="aws",
        packages=("boto3",),
    ),
    "show": Subcommand(
        _LOOKED_AT,
        "show",
        "Print the operations of some pages.",
        extra="aws",
        packages=("boto3",),
    ),
    "compact": Subcommand(
        _LAKE,
        "compact",
        "Bring its tables up to date, and compact what everybody has read.",
        extra="pipeline",
        packages=_NEEDED,
    ),
    "query": Subcommand(
        _LAKE, "query", "Ask its tables in SQL.", extra="pipeline", packages=_NEEDED
    ),
}


class ArchiveGroup(LazyGroup):
    table = _COMMANDS
    called = "tidings archive"


@click.group(cls=ArchiveGroup, epilog=EXIT_CODES)
def archive() -> None:
    """
    Look at the archive of a feed, and compact it.

    \b
    Examples:
      tidings archive status --stage prod
      tidings archive show 12..14 --archive ./feed
      tidings archive compact --stage prod --table lake
      tidings archive query "SELECT count(*) FROM history" --table lake
    """
