"""`tidings local`: run the functions of a stage on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tests.twin.options import Options
from tidings.server.command import host_options, pairs, run
from tidings.server.output import unblock
from tidings.server.processes import Problem

STOP_S = 60.0  # the longest time from a signal to the end, in which DynamoDB Local is also stopped


@click.command()
@host_options
@click.option("--endpoint-url", help="Use this DynamoDB instead of starting DynamoDB Local.")
@click.option("--dynamodb-port", default=0, help="Port of DynamoDB Local; 0: a free port.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the feed and the logs.  [default: deleted with the twin]",
)
@click.option(
    "--archive",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the archive.  [default: the folder of --data, if given]",
)
@click.option(
    "--functions",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Run the handlers of this folder instead of the repository's or the package's.",
)
@click.option(
    "--capture",
    "captures",
    multiple=True,
    metavar="TABLE=JSON",
    help="Append the writes to TABLE, in the same DynamoDB, to a feed; repeatable.",
)
@click.option("--verbose", is_flag=True, help="Show the functions' logs.")
def local(settings: tuple[str, ...], **options: object) -> None:
    """Run the feed on this machine, with the deployed functions and no AWS account.

    Without --endpoint-url, DynamoDB Local is started. It needs Java 17, and Maven the first time.

    \b
    Examples:
      tidings local --demo                 open http://127.0.0.1:8042/
      tidings local --data ./feed          keep the feed after the twin ends
      tidings local --feeds main,orders --setting TIDINGS_RETENTION_HOURS=1
      tidings local --read-password-file reader.txt --compat oplog
      tidings local --port 8052 --chain-from http://127.0.0.1:8042/feeds/main

    \b
    Exit codes:
      0  ended by Ctrl-C or SIGTERM
      1  the twin could not start, or its DynamoDB ended; one sentence says why
      2  usage
    """
    from tests.twin import twin  # help texts do not need its packages

    unblock("stdout", "stderr", waits=False)
    try:
        run(twin.run, "local", Options(settings=pairs(settings), **options), STOP_S)  # type: ignore[arg-type]
    except Problem as problem:
        click.echo(f"tidings local: {problem}", err=True)
        sys.exit(1)
