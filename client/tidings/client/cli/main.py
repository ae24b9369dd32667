"""
The command line `tidings`.

A subcommand is imported when it is run: `tidings --help` needs none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import click

EXIT_CODES = "Exit codes: 0 done, 1 failure, 2 wrong usage."


@dataclass(frozen=True, slots=True)
class Subcommand:
    """`module.attribute` is the click command; it needs the packages of *extra* to run."""

    module: str
    attribute: str
    help: str
    extra: str = ""
    packages: tuple[str, ...] = ()


SUBCOMMANDS = {
    "post": Subcommand("tidings.client.cli.post", "post", "Post what changed to a feed."),
    "tail": Subcommand("tidings.client.cli.tail", "tail", "Show a feed as it moves."),
    "status": Subcommand("tidings.client.cli.status", "status", "Show how a feed is."),
    "snoop": Subcommand(
        "tidings.client.cli.snoop", "snoop", "Print the items of a change feed as they come."
    ),
    "consume": Subcommand(
        "tidings.client.cli.consume", "consume", "Work for a named consumer of a feed."
    ),
    "consumers": Subcommand(
        "tidings.client.cli.consumers", "consumers", "Show and steer named consumers."
    ),
    "relays": Subcommand(
        "tidings.client.cli.relays", "relays", "Show and steer feeds that copy another one."
    ),
    "log": Subcommand("tidings.client.cli.log", "log", "Look at the log of a feed."),
    "archive": Subcommand(
        "tidings.client.cli.archive", "archive", "Look at and compact an archive."
    ),
    "agent": Subcommand(
        "tidings.agent.command",
        "agent",
        "Keep a producer's operations on disk and post them.",
        extra="agent",
        packages=("uvicorn",),
    ),
    "local": Subcommand(
        "tidings.local.command",
        "local",
        "Run Tidings on this machine, without an AWS account.",
        extra="local",
        packages=("awslambdaric", "boto3", "h11", "uvicorn"),
    ),
    "feed": Subcommand(
        "tidings.operate.feed_command",
        "feed",
        "Show and change the settings and passwords of a feed.",
        extra="aws",
        packages=("boto3",),
    ),
    "stages": Subcommand(
        "tidings.operate.stages_command",
        "stages",
        "List what the stages of an account expose, and what is due to be rotated.",
        extra="aws",
        packages=("boto3",),
    ),
    "doctor": Subcommand(
        "tidings.operate.doctor_command",
        "doctor",
        "Ask an account whether a deploy of a stage would go through.",
        extra="aws",
        packages=("boto3",),
    ),
    "users": Subcommand(
        "tidings.operate.users_command",
        "users",
        "Import and list who may ask for the changes of a feed.",
        extra="aws",
        packages=("boto3",),
    ),
    "keys": Subcommand(
        "tidings.operate.keys_command",
        "keys",
        "Make, list and revoke the keys of a feed.",
        extra="aws",
        packages=("boto3",),
    ),
    "sync": Subcommand(
        "tidings.sync.command",
        "sync",
        "Make a feed agree with a dump of the real data.",
        extra="pipeline",
        packages=("boto3", "pyspark"),
    ),
    "pipeline": Subcommand(
        "tidings.pipelines.command",
        "pipeline",
        "Copy a feed into stores and keep them equal.",
        extra="flow",
        packages=("psycopg", "pyarrow"),
    ),
    "verify": Subcommand(
        "tidings.operate.verify_command",
        "verify",
        "Compare the state of a feed with its log.",
        extra="aws",
        packages=("boto3",),
    ),
    "rebuild": Subcommand(
        "tidings.operate.rebuild_command",
        "rebuild",
        "Put right what differs between the state of a feed and its log.",
        extra="aws",
        packages=("boto3",),
    ),
    "restore": Subcommand(
        "tidings.operate.restore_command",
        "restore",
        "Take up a feed whose tables were put back to an earlier moment.",
        extra="aws",
        packages=("boto3",),
    ),
    "completion": Subcommand(
        "tidings.client.cli.completion", "completion", "Print the completion of a shell."
    ),
}


class LazyGroup(click.Group):
    """Knows its subcommands by a table, `SUBCOMMANDS` or its own, and imports the one that runs."""

    table: Mapping[str, Subcommand] = SUBCOMMANDS
    called = "tidings"

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self.table.get(cmd_name)
        if found is None:
            return None
        missing = _missing(found)
        if missing:
            return _unavailable(f"{self.called} {cmd_name}", found, missing)
        command = getattr(importlib.import_module(found.module), found.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, found.help) for name, found in self.table.items()])


def _missing(found: Subcommand) -> Sequence[str]:
    return [name for name in found.packages if find_spec(name) is None]


def _unavailable(name: str, found: Subcommand, missing: Sequence[str]) -> click.Command:
    """Stands in for a command whose packages are not installed: any use of it says so."""

    def refuse(arguments: tuple[str, ...]) -> None:
        raise click.ClickException(
            f"`{name}` needs {', '.join(missing)}, not installed here;"
            f" install the extra: pip install 'tidings[{found.extra}]'"
        )

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
    )


def _print_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    click.echo(f"tidings {version('tidings')}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"\b\n{EXIT_CODES}\nMore about one command: tidings COMMAND --help",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """
    Tidings: a change feed. Post what changed; every consumer hears of it in order.

    \b
    Examples:
      tidings local                        run everything on this machine
      tidings tail --from 0                everything there is, then what happens
      tidings post insert video x32        say that the video x32 is new
    """


if __name__ == "__main__":
    main()
