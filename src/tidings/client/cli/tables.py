"""`tidings tables`: a feed as Iceberg tables."""

from __future__ import annotations

import click
from tidings.client.cli.main import EXIT_CODES, LazyGroup, Subcommand

_LAKE = "tidings.lake.tables_command"
_COMMANDS = {
    "follow": Subcommand(_LAKE, "Keep the tables of a feed minutes behind it.", "spark"),
    "status": Subcommand(_LAKE, "Show how far each table is.", "spark"),
    "query": Subcommand(_LAKE, "Ask the tables in SQL.", "spark"),
}


class TablesGroup(LazyGroup):
    table = _COMMANDS
    called = "tidings tables"


@click.group(cls=TablesGroup, epilog=EXIT_CODES)
def tables() -> None:
    """
    Keep a feed as Iceberg tables: every operation, the latest of each object, a table for a type.

    \b
    Examples:
      tidings tables follow --table lake --once
      tidings tables follow --table lake --stage prod --columns columns.json
      tidings tables status --table lake
      tidings tables query "SELECT count(*) FROM history" --table lake
    """
