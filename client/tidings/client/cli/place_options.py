"""The options of a command that asks one feed by HTTP."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
from tidings.client.cli.feed_options import feed_option
from tidings.client.cli.password_options import password_options
from tidings.client.cli.stage_options import address_options
from tidings.client.consume.named_consumers import NamedConsumers
from tidings.client.errors import ClientError


@dataclass(frozen=True, slots=True)
class Place:
    """Which feed, where, and the password for it."""

    url: str
    feed: str
    password: str = field(repr=False)

    @contextmanager
    def asking(self) -> Iterator[NamedConsumers]:
        """An error of the client becomes the one line that a person reads, and exit code 1."""
        try:
            with NamedConsumers(self.url, self.feed, password=self.password) as api:
                yield api
        except ClientError as error:
            raise click.ClickException(str(error)) from None


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --url, --stage, --feed and a password's to a command, which is given one *place*."""

    @functools.wraps(command)
    def with_place(url: str, feed: str, password: str, **others: Any) -> None:
        command(place=Place(url, feed, password), **others)

    return address_options(feed_option(password_options(with_place)))
