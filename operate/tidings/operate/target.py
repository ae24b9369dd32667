"""Which feed is meant: of a stage on AWS, or of a twin by the address of its DynamoDB."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3  # noqa: TID251 an operator's own credentials and profile, not a function's
import click
from botocore.config import Config  # noqa: TID251 see above
from botocore.exceptions import BotoCoreError, ClientError  # noqa: TID251 see above
from tidings.aws.config import stages, twin_keys
from tidings.aws.dynamodb.profiles import DynamoDBProfiles
from tidings.client.cli.options import endpoint_option, feed_option, stage_option
from tidings.core.errors import TidingsError, Unavailable
from tidings.core.model.feeds import check_known, check_name
from tidings.core.settings.feed import Profile, checked
from tidings.core.settings.stores import Profiles

Change = Callable[[Profile], Profile]
Command = Callable[..., None]
Find = Callable[[str, str | None, str | None], object]

SAVE_ATTEMPTS_MAX = 3  # each loss means that somebody else saved within the same tenth of a second
_TWIN = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}, proxies={})


@dataclass(frozen=True, slots=True)
class Target:
    """*feed* and where its profile is."""

    feed: str
    profiles: Profiles

    def read(self) -> Profile:
        return self.profiles.profile(self.feed)

    def change(self, change: Change) -> Profile:
        """
        Save what *change* makes of the profile; the profile afterwards.

        Another operator's change made meanwhile is kept: ours is made again on top of it.
        """
        for _ in range(SAVE_ATTEMPTS_MAX):
            wanted = checked(change(self.read()))
            if self.profiles.save(self.feed, wanted):
                return wanted
        raise click.ClickException("the profile kept changing; try again")


def feed_options(find: Find) -> Callable[[Command], Command]:
    """
    Adds --feed, --stage and --endpoint-url to a command, which is given one *target*.

    *find* makes it of the three, of which either of the last two is None.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_target(
            feed: str, stage: str | None, endpoint_url: str | None, **others: Any
        ) -> None:
            check_place(stage, endpoint_url)
            with one_sentence_errors():
                command(target=find(check_name(feed), stage, endpoint_url), **others)

        for option in (endpoint_option, stage_option, feed_option):
            with_target = option(with_target)
        return with_target

    return decorate


def check_place(stage: str | None, endpoint_url: str | None) -> None:
    """
    Raises:
        UsageError: neither is named, or both are.
    """
    if (stage is None) == (endpoint_url is None):
        raise click.UsageError("name either --stage, or --endpoint-url for a twin")


@contextmanager
def one_sentence_errors() -> Iterator[None]:
    """Report errors in one sentence, without a traceback."""
    try:
        yield
    except Unavailable:
        raise click.ClickException("DynamoDB did not answer; try again") from None
    except (TidingsError, stages.NoStage, BotoCoreError, ClientError) as error:
        raise click.ClickException(str(error)) from None


def _find(feed: str, stage: str | None, endpoint_url: str | None) -> Target:
    return Target(feed, DynamoDBProfiles(*control_table(feed, stage, endpoint_url)))


target_options = feed_options(_find)


def control_table(feed: str, stage: str | None, endpoint_url: str | None) -> tuple[Any, str]:
    """A client of DynamoDB and the table that holds what operators set; a stage has *feed*."""
    if stage is None:
        return twin_client(str(endpoint_url)), f"{stages.stack_name('local')}-control"
    deployed = stages.find(stage, boto3.client("cloudformation"))
    check_known(feed, deployed.feeds)
    return boto3.client("dynamodb"), deployed.control_table


def twin_client(endpoint_url: str, config: Config = _TWIN) -> Any:
    """With the key of the twin: none of yours are sent to it."""
    shown = twin_keys.credentials(endpoint_url)
    return boto3.client("dynamodb", endpoint_url=endpoint_url, config=config, **shown)


def addresses(stage: str) -> stages.Addresses:
    """
    Raises:
        ClickException: there is no such stage, or AWS cannot be asked.
    """
    with one_sentence_errors():
        return stages.addresses(stage, boto3.client("cloudformation"))
