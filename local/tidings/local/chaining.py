"""What the command line says of chained feeds, as the settings of a deployment say it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from botocore.exceptions import EndpointConnectionError  # noqa: TID251 the twin creates tables
from tidings.aws.config.coordinator import CoordinatorUrl
from tidings.aws.config.deployment import COORDINATION_TABLE
from tidings.aws.dynamodb.relays import DynamoDBRelays
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.model.numbers import whole
from tidings.core.replication.replica import RELAY
from tidings.core.replication.source_settings import RESTART_OFFSET_MAX
from tidings.local.lambdas.lambda_api import Invoke
from tidings.local.store import engine, tables
from tidings.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_dynamodb import DynamoDBClient
    from tidings.local.options import Options

FUNCTION = f"follow-{RELAY}"
AGAIN_S = 1.0  # a machine that is busy starting; the sweep would wake it within a minute
_LISTS = ("types", "parents")
_NUMBERS = ("restart_offset", "leaders")


def chained(options: Options) -> dict[str, str]:
    """
    The addresses that are copied, by the feed that copies them.

    Raises:
        Problem: an option names no feed.
    """
    urls = {}
    if options.chain_from:
        url = _of_a_feed(options.chain_from)
        urls[unquote(url.rpartition("/")[2])] = url
    for text in options.chains:
        feed, equals, url = text.partition("=")
        if not equals:
            raise Problem(f"--chain {text}: must be FEED=URL")
        urls[feed] = _of_a_feed(url)
    if options.source and not urls:
        raise Problem("--source says how a feed is chained: it needs --chain-from or --chain")
    return urls


def settings(options: Options) -> dict[str, str]:
    """
    Those of this twin beside the others; none where nothing is chained.

    Raises:
        Problem: see `chained`.
    """
    urls = chained(options)
    if not urls:
        return {"TIDINGS_COORDINATOR": options.coordinator} if options.coordinator else {}
    feeds = dict.fromkeys([*filter(None, options.feeds.split(",")), *urls])
    said = dict(_said(options))
    sources = {feed: {"url": url, **_addressed(options, feed, said)} for feed, url in urls.items()}
    return {
        "TIDINGS_FEEDS": ",".join(feeds),
        "TIDINGS_SOURCES": json.dumps(sources),
        "TIDINGS_COORDINATOR": options.coordinator,
    }


def create_leases(url: str, coordinator: CoordinatorUrl | None) -> None:
    """
    Create the table where leaders are elected, unless a twin before us has.

    Where its store is away, it is created by whoever starts when it is there.
    """
    if coordinator is None:
        return
    client = engine.tables_client(coordinator.endpoint or url)
    with contextlib.suppress(EndpointConnectionError):
        tables.create_one(client, coordinator.table, COORDINATION_TABLE)


def free_leases(client: DynamoDBClient, feeds: Iterable[str]) -> None:
    """
    Take the relays away from whoever held them.

    Only right when nobody can: see `tables.free_leases`.
    """
    store = DynamoDBRelays(client, tables.name_of("log"), tables.name_of("control"))
    for feed in feeds:
        relay = store.relay(feed)
        if relay.owner:
            store.write(relay, replace(relay, owner="", lease_until_ms=0))


def workers(feeds: Collection[str]) -> dict[str, int]:
    """A run lasts for minutes: one for each of *feeds*, and one to find that there is another."""
    return {FUNCTION: len(feeds) + 1}


async def begin(feed: str, invoke: Invoke) -> None:
    """The first run, at once; a worker that did not start in time is tried again."""
    payload = json.dumps({"ring": feed}).encode()
    while (await invoke(FUNCTION, payload)).error is not None:
        await asyncio.sleep(AGAIN_S)


def _of_a_feed(url: str) -> str:
    """*url* with the feed it means by itself."""
    plain = url.rstrip("/")
    return plain if "/feeds/" in urlsplit(plain).path else f"{plain}/feeds/{DEFAULT_FEED}"


def _said(options: Options) -> Iterator[tuple[str, Any]]:
    for text in options.source:
        name, equals, value = text.partition("=")
        if not equals:
            raise Problem(f"--source {text}: must be NAME=VALUE")
        if name in _LISTS:
            yield name, value.split(",")
        elif name in _NUMBERS:
            yield name, _number(value)
        else:
            yield name, value


def _number(value: str) -> int | str:
    """What is none is left as it is, for `source_settings` to refuse with its rule."""
    try:
        return whole(value, 0, RESTART_OFFSET_MAX)
    except ValueError:
        return value


def _addressed(options: Options, feed: str, said: dict[str, Any]) -> dict[str, Any]:
    """An elected twin is at the address where it listens, unless it says another one."""
    if said.get("role") != "elected" or "address" in said or not options.port:
        return said
    return said | {"address": f"http://{options.host}:{options.port}/feeds/{feed}"}
