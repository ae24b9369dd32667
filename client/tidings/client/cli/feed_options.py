"""
The options by which a command is told which feed it is about, for all commands alike.

A feed is asked over HTTP, by its address and a password or key, or its tables are used, by the
name of its stage and credentials of AWS, or by the address of a twin's DynamoDB.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click
from tidings.client.address import DEFAULT_FEED, DEFAULT_URL
from tidings.client.cli.password_options import password_options
from tidings.client.cli.stage_options import LOCAL

Command = Callable[..., None]

feed_option = click.option("--feed", default=DEFAULT_FEED, show_default=True, help="Which feed.")
stage_option = click.option(
    "--stage", metavar="NAME", help="Its stage, by its tables: dev, staging, prod, as AWS has it."
)
endpoint_option = click.option(
    "--endpoint-url", metavar="URL", help="Instead: the DynamoDB of a twin."
)


def filter_options(command: Command) -> Command:
    """Adds what of a feed is wanted to a command, which is given *wanted*: lists by field."""

    @functools.wraps(command)
    def with_filter(types: str, parents: str, ids: str, **others: Any) -> None:
        given = {"types": types, "parents": parents, "ids": ids}
        wanted = {
            name: [value.strip() for value in text.split(",") if value.strip()]
            for name, text in given.items()
            if text
        }
        command(wanted=wanted, **others)

    options = (
        click.option("--types", default="", metavar="A,B", help="Only objects of these types."),
        click.option(
            "--parents", default="", metavar="X,Y", help="Only objects below one of these."
        ),
        click.option(
            "--ids", default="", metavar="I,J", help="Only objects with these ids; x* begin with x."
        ),
    )
    for option in reversed(options):
        with_filter = option(with_filter)
    return with_filter


@dataclass(frozen=True, slots=True)
class NamedFeed:
    """*feed*, and where: one of *url*, *stage* and *endpoint_url* is not empty."""

    feed: str
    url: str = ""
    stage: str = ""
    endpoint_url: str = ""
    password: str = field(default="", repr=False)


def named_feed_options(command: Command) -> Command:
    """Adds all of them and a password's to a command, which is given one *named* feed."""

    @functools.wraps(command)
    def with_feed(
        feed: str,
        url: str | None,
        stage: str | None,
        endpoint_url: str | None,
        password: str,
        **others: Any,
    ) -> None:
        check_once(url, stage, endpoint_url)
        if stage == LOCAL:
            stage, url = None, DEFAULT_URL
        if not stage and not endpoint_url:
            url = url or DEFAULT_URL
        named = NamedFeed(feed, url or "", stage or "", endpoint_url or "", password)
        command(named=named, **others)

    at = click.option("--url", help=f"Where it is, over HTTP.  [default: {DEFAULT_URL}]")
    options = (feed_option, at, stage_option, endpoint_option, password_options)
    for option in reversed(options):
        with_feed = option(with_feed)
    return with_feed


def check_once(*places: str | None) -> None:
    """
    Raises:
        UsageError: more than one of *places* is named.
    """
    if sum(map(bool, places)) > 1:
        raise click.UsageError("say once where the feed is: --url, --stage or --endpoint-url")
