"""`tidings local`: the feed on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import click
import uvloop
from tidings.client.address import DEFAULT_URL
from tidings.local import twin
from tidings.local.options import DEFAULT_MAX_AGE_S, Options
from tidings.local.problems import Problem

_FILE = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8042, show_default=True, help="Port to listen on; 0: a free one.")
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="Answer as this host too, beside localhost and addresses; may be repeated.",
)
@click.option(
    "--allow-origin",
    "allow_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Let pages of http://HOST:PORT read and post; `*`: all may read. May be repeated.",
)
@click.option("--endpoint-url", help="Use this DynamoDB instead of starting DynamoDB Local.")
@click.option("--dynamodb-port", default=0, help="Port of DynamoDB Local; 0: a free one.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the feed and the logs in this folder; without it everything ends with the twin.",
)
@click.option(
    "--archive",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep what the log gives up in this folder; without it in that of --data, or not at all.",
)
@click.option("--feeds", default="main", show_default=True, help="Feeds, comma-separated.")
@click.option(
    "--functions",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Run the handlers of this folder instead of the repository's.",
)
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Replace a default of docs/OPERATIONS.md, e.g. TIDINGS_RETENTION_HOURS=1.",
)
@click.option("--object-url", metavar="TEMPLATE", help="Links: http://api/{{type}}/{{id}}.")
@click.option("--compat", type=click.Choice(["", "oplog"]), help="Answer as oplog did.")
@click.option("--leave/--no-leave", default=None, help="Keep what `leave=true` needs, or do not.")
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME:SUB,SUB[=/ROUTE]",
    help="Declare a resource to listeners; may be repeated.",
)
@click.option(
    "--max-age",
    default=DEFAULT_MAX_AGE_S,
    show_default=True,
    help="Seconds that items stay, where there is a resource.",
)
@click.option(
    "--capture",
    "captures",
    multiple=True,
    metavar="TABLE=JSON",
    help="Tell what is written in a table of the same DynamoDB; may be repeated.",
)
@click.option("--chain-from", metavar="URL", help="Copy the feed at this address, and follow it.")
@click.option(
    "--chain",
    "chains",
    multiple=True,
    metavar="FEED=URL",
    help="Copy a feed under a name of its own; may be repeated.",
)
@click.option(
    "--source",
    multiple=True,
    metavar="NAME=VALUE",
    help="How it is copied, as docs/CHAINING.md says, e.g. types=video or fall_off=wait.",
)
@click.option("--coordinator", default="", metavar="URL", help="Where leaders are elected.")
@click.option("--read-password-file", type=_FILE, help="Ask readers for the password in here.")
@click.option("--ingest-password-file", type=_FILE, help="Ask producers for the one in here.")
@click.option("--demo", is_flag=True, help="Post something to watch.")
@click.option(
    "--demo-repo",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Post the history of this git repository (default: of the checkout, if there is one).",
)
@click.option("--verbose", is_flag=True, help="Show the functions' logs.")
def local(settings: tuple[str, ...], **options: object) -> None:
    """
    Run the feed on this machine, with the deployed functions and no AWS account.

    It needs Java 17 and, the first time, Maven for DynamoDB Local; or --endpoint-url.

    \b
    Examples:
      tidings local --demo                 watch http://127.0.0.1:8042/console
      tidings local --data ./feed          keep the feed; kill it and start it again
      tidings local --feeds main,orders --setting TIDINGS_RETENTION_HOURS=1
      tidings local --read-password-file reader.txt --compat oplog
      tidings local --port 8052 --chain-from http://127.0.0.1:8042/feeds/main

    \b
    Exit codes:
      0  ended by Ctrl-C or SIGTERM
      1  it could not start; one sentence says why
      2  usage
    """
    try:
        uvloop.run(_run(Options(settings=_pairs(settings), **options)))  # type: ignore[arg-type]
    except Problem as problem:
        click.echo(f"tidings local: {problem}", err=True)
        sys.exit(1)


async def _run(options: Options) -> None:
    """Serve until a signal; one that comes while starting ends the start."""
    serving, stopped = asyncio.Event(), asyncio.Event()

    def ready(http_url: str, ws_url: str) -> None:
        serving.set()
        click.echo(f"tidings local ready {http_url} {ws_url}")
        if sys.stderr.isatty():  # a person, who has yet to see something
            click.echo(
                f"watch {http_url}console, or run {_tail(http_url)}; Ctrl-C ends it", err=True
            )

    running = asyncio.ensure_future(twin.run(options, ready, stopped))

    def stop() -> None:
        stopped.set()
        if not serving.is_set():
            running.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def _tail(url: str) -> str:
    at = "" if url.rstrip("/") == DEFAULT_URL else f" --url {url}"
    return f"`tidings tail --from 0{at}`"


def _pairs(settings: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for text in settings:
        name, separator, value = text.partition("=")
        if not separator:
            raise Problem(f"--setting {text}: must be NAME=VALUE")
        pairs[name] = value
    return pairs
