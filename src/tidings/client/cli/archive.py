"""`tidings archive`: what is kept of a feed for ever."""

from __future__ import annotations

import click
from tidings.client.cli.main import EXIT_CODES, LazyGroup, Subcommand

_OPERATE, _LAKE = "tidings.admin.archive_command", "tidings.lake.command"
_COMMANDS = {
    "status": Subcommand(_OPERATE, "Show what is there, and how far its follower is.", "aws"),
    "show": Subcommand(_OPERATE, "Print the operations of some pages.", "aws"),
    "compact": Subcommand(_LAKE, "Compact what everybody has read and a table keeps.", "spark"),
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
    """
