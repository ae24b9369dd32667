"""The common part of the sync commands: the feed that they name, its errors, and a guard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tidings.client.cli.options import NamedFeed
from tidings.core.errors import TidingsError
from tidings.core.sync import dumps
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset

if TYPE_CHECKING:
    from tidings.sync.feed import Feed

delete_share_option = click.option(
    "--max-delete-share",
    type=click.FloatRange(0, 1),
    default=dumps.DELETE_SHARE_MAX,
    show_default=True,
    help="Stop where a larger share of the objects would be deleted.",
)


def opened(named: NamedFeed) -> Feed:
    """Return the feed that a command names, after checking that the caller may correct it."""
    with refusals():
        feed = _place(named)
        feed.check()  # before hours of work on a plan that the caller may not apply
        return feed


def _place(named: NamedFeed) -> Feed:
    if named.url:
        from tidings.sync.over_http import Remote

        return Remote(named.url, named.feed, named.password)
    from tidings.sync import target

    if named.stage:
        return target.on_stage(named.feed, named.stage)
    return target.on_twin(named.feed, named.endpoint_url)


def dataset_of(named: NamedFeed) -> Dataset:
    """Return the lineage dataset of the feed, by its HTTP address, even if it is read otherwise."""
    if not named.stage:
        return datasets.of_feed(named.url or named.endpoint_url, named.feed)
    from tidings.aws.config import stages
    from tidings.sync.stage import client

    with refusals():
        url = stages.addresses(named.stage, client("cloudformation")).feed
    return datasets.of_feed(url, named.feed)


@contextmanager
def refusals() -> Iterator[None]:
    """Convert an error of the feed or of AWS to one sentence and exit code 1."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 as at any edge

    from tidings.aws.config.stages import NoStage

    try:
        yield
    except (TidingsError, NoStage, BotoCoreError, ClientError) as error:
        raise click.ClickException(str(error)) from None
