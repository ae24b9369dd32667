"""The options that say where a feed is: an address, or the name of a stage that has one."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, cast

import click
from click.shell_completion import CompletionItem
from tidings.client.address import DEFAULT_URL

if TYPE_CHECKING:
    Command = Callable[..., None]

LOCAL = "local"  # the twin at its own port: nobody has to be asked
_KNOWN = ("dev", "staging", "prod", LOCAL)  # what a shell completes; others are taken, too
_LOOKED_UP = "tidings.operate.stage_addresses"  # imported where a stage is named: it needs AWS


_ONCE = "say once where it is: as an address, or with --stage"


class Addresses(Protocol):
    """Where a stage is, for each kind of request."""

    @property
    def feed(self) -> str: ...

    @property
    def stream(self) -> str: ...

    @property
    def sockets(self) -> str: ...


def address_options(command: Command) -> Command:
    """
    Adds --url and --stage to a command, which is given *url*.

    With --stage that is where the command has to ask, and *ws_url* the stage's own, if the
    command has such an option and it is not used. A command may have an argument *address*, too.
    """

    @functools.wraps(command)
    def with_address(url: str | None, stage: str | None, **others: Any) -> None:
        address = others.pop("address", None)
        if sum(map(bool, (url, stage, address))) > 1:
            raise click.UsageError(_ONCE)
        if stage and stage != LOCAL:
            url, others = _on(stage, others)
        command(url=url or address or DEFAULT_URL, **others)

    at = click.option("--url", help=f"Where Tidings is.  [default: {DEFAULT_URL}]")
    named = click.option(
        "--stage",
        metavar="NAME",
        shell_complete=_completed,
        help="Its stage instead: dev, staging, prod, as AWS has it; local.",
    )
    return at(named(with_address))


def _on(stage: str, others: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Where the command asks on *stage*, and what is different for it there."""
    if others.get("sse"):
        raise click.UsageError("--sse goes with --url: a stage streams at an address of its own")
    found = _looked_up(stage)
    if "ws_url" in others:
        others = others | {"ws_url": others["ws_url"] or found.sockets}
    return found.stream if others.get("transport") == "sse" else found.feed, others


def _looked_up(stage: str) -> Addresses:
    """
    Raises:
        ClickException: AWS cannot be asked, or knows no such stage.
    """
    if find_spec("boto3") is None:
        raise click.ClickException(
            "--stage needs boto3, not installed here; install the extra: pip install 'tidings[aws]'"
        )
    return cast("Addresses", importlib.import_module(_LOOKED_UP).addresses(stage))


def _completed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _KNOWN if name.startswith(incomplete)]
