"""`tidings consume`: a worker of a named consumer that prints messages or runs a command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import Place, place_options
from tidings.client.cli.render import compact, failures
from tidings.client.cli.signals import stop_on_signals
from tidings.client.errors import ClientError, Lost, Unwritten

if TYPE_CHECKING:
    from tidings.client.worker import Message

DEFAULT_BULK = 500


@click.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--bulk",
    type=click.IntRange(min=1),
    default=DEFAULT_BULK,
    show_default=True,
    help="At most so many messages together.",
)
@click.option("--worker", default="", metavar="TEXT", help="A name of this process, no other's.")
@click.option("--ws-url", help="Where its WebSocket is, if not at /ws of --url.")
@click.option("--sse", is_flag=True, help="Read by Server-Sent Events.")
@place_options
def consume(name: str, command: tuple[str, ...], sse: bool, place: Place, **options: Any) -> None:
    """
    Work for the consumer NAME until Ctrl-C: print its messages, or give them to COMMAND.

    Each batch is a line of JSON a message: printed, or the input of COMMAND, run once a batch.
    It is acknowledged when it was printed, or when COMMAND ends with 0. When COMMAND ends
    otherwise, so does this; started again, what was not acknowledged comes one by one.

    \b
    Examples:
      tidings consume search                        see what comes
      tidings consume search --bulk 100 -- ./index  a hundred at a time to a program
    """
    from tidings.client.worker import Worker

    write = _to_command(command) if command else _to_stdout
    with (
        failures(),
        Worker(
            place.url,
            name,
            feed=place.feed,
            password=place.password,
            transport="sse" if sse else "ws",
            on_lost=_on_lost,
            **options,
        ) as made,
    ):
        stop_on_signals(made.stop)
        made.run(write)


def _on_lost(lost: Lost, delay_s: float) -> None:
    click.echo(f"{lost}; again in {delay_s:.0f} s", err=True)


def _to_stdout(batch: Sequence[Message]) -> None:
    click.echo("".join(map(_line, batch)), nl=False)
    sys.stdout.flush()


def _to_command(command: Sequence[str]) -> Callable[[Sequence[Message]], None]:
    def write(batch: Sequence[Message]) -> None:
        text = "".join(map(_line, batch)).encode()
        try:
            done = subprocess.run(command, input=text, check=False)
        except OSError as error:
            raise Unwritten(0, f"{command[0]} cannot be run: {error.strerror}") from None
        if done.returncode:
            raise _Failed(f"{command[0]} ended with {done.returncode}")

    return write


class _Failed(ClientError):
    """COMMAND failed on the batch; it is unknown how much of it was handled."""


def _line(message: Message) -> str:
    return compact({"id": message.id, "event": message.event, "data": message.data}) + "\n"
