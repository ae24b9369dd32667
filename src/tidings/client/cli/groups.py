"""The command groups of `tidings` that only contain other commands, and `tidings completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tidings.client.cli.main import EXIT_CODES, LazyGroup, Subcommand, main

_ARCHIVE, _COMPACT = "tidings.admin.archive_command", "tidings.lake.command"
_TABLES = "tidings.lake.tables_command"


@click.group(
    cls=LazyGroup,
    epilog=EXIT_CODES,
    called="tidings archive",
    table={
        "status": Subcommand(_ARCHIVE, "Show what is there, and how far its follower is.", "aws"),
        "show": Subcommand(_ARCHIVE, "Print the operations of some pages.", "aws"),
        "compact": Subcommand(
            _COMPACT, "Compact what everybody has read and a table keeps.", "spark"
        ),
    },
)
def archive() -> None:
    """
    Look at the archive of a feed, and compact it.

    \b
    Examples:
      tidings archive status --stage prod
      tidings archive show 12..14 --archive ./feed
      tidings archive compact --stage prod --table lake
    """


@click.group(
    cls=LazyGroup,
    epilog=EXIT_CODES,
    called="tidings tables",
    table={
        "follow": Subcommand(_TABLES, "Keep the tables of a feed minutes behind it.", "spark"),
        "status": Subcommand(_TABLES, "Show how far each table is.", "spark"),
        "query": Subcommand(_TABLES, "Ask the tables in SQL.", "spark"),
    },
)
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


@click.command(epilog=EXIT_CODES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """
    Print the completion script of SHELL.

    \b
    Examples:
      tidings completion bash >> ~/.bashrc
      tidings completion zsh > "${fpath[1]}/_tidings"
      tidings completion fish > ~/.config/fish/completions/tidings.fish
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    click.echo(shell_class(main, {}, "tidings", "_TIDINGS_COMPLETE").source())
