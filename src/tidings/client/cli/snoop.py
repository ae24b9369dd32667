"""`tidings snoop`: print the items of a change feed as they arrive."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import address_options, feed_option, password_options
from tidings.client.cli.render import failures

if TYPE_CHECKING:
    from tidings.client.listener import Signal

SERVICE = "tidings-snoop"


@click.command(epilog=EXIT_CODES)
@click.option("-r", "--resource", help="The resource to listen for.")
@click.option("-s", "--sub-resources", metavar="SUB,SUB", help="Its sub-resources.")
@address_options
@click.option("--ws-url", help="Its WebSocket, where that has an address of its own.")
@feed_option
@password_options
@click.pass_context
def snoop(
    ctx: click.Context,
    /,
    resource: str | None,
    sub_resources: str | None,
    url: str,
    **options: Any,
) -> None:
    """
    Print every item of a change feed that matches, one line of JSON each, until Ctrl-C.

    A connection that ends is made again. A registration that is refused ends it with exit code
    1, and so does a missing option.

    \b
    Example:
      tidings snoop -r vm -s nic,alias
    """
    if not resource or not sub_resources:
        click.echo(ctx.get_usage(), err=True)
        click.echo("Error: -r and -s are both needed", err=True)
        ctx.exit(1)
    from tidings.client.listener import Listener

    wanted = {resource: [sub for sub in sub_resources.split(",") if sub]}
    with (
        failures(),
        suppress(KeyboardInterrupt),
        Listener(
            url,
            instance=secrets.token_hex(16),
            service=SERVICE,
            resources=wanted,
            fetch=lambda bootstrap: (),
            **options,
        ) as listener,
    ):
        _print(listener)


def _print(signals: Iterable[Signal]) -> None:
    from tidings.client.listener import Ended, Item

    for signal in signals:
        if isinstance(signal, Item):
            click.echo(json.dumps(signal.fields, ensure_ascii=False, separators=(",", ":")))
            sys.stdout.flush()
        elif isinstance(signal, Ended):
            if signal.refused:
                raise click.ClickException(signal.reason)
            click.echo(f"{signal.reason}; again in {signal.delay_s:.1f} s", err=True)
