"""Convert the command line options of chained feeds to the settings of a deployment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tidings.core.errors import InvalidFilter, whole
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.model.filters import listed
from tidings.core.replication.source import RESTART_OFFSET_MAX
from tidings.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidings.server.feed_options import HostOptions

_LISTS = ("types", "parents")
_NUMBERS = ("restart_offset", "leaders")


def chained(options: HostOptions) -> dict[str, str]:
    """
    Return the upstream URL of each chained feed, by the feed's name.

    Raises:
        Problem: an option does not name a feed.
    """
    urls = {}
    if options.chain_from:
        url = _of_a_feed(options.chain_from)
        urls[unquote(url.rpartition("/")[2])] = url
    for text in options.chains:
        feed, equals, url = text.partition("=")
        if not equals or "://" in feed:
            raise Problem("--chain: must be FEED=URL")  # the text may hold a password
        urls[feed] = _of_a_feed(url)
    if options.source and not urls:
        raise Problem("--source says how a feed is chained: it needs --chain-from or --chain")
    return urls


def settings(options: HostOptions) -> dict[str, str]:
    """
    Return the settings for chaining and election; empty if the options configure neither.

    Raises:
        Problem: see `chained`.
    """
    urls = chained(options)
    elections = {"TIDINGS_COORDINATOR": options.coordinator} if options.coordinator else {}
    if not urls:
        return elections
    feeds = dict.fromkeys([*filter(None, options.feeds.split(",")), *urls])
    fields = dict(_source_fields(options))
    sources = {
        feed: {"url": url, **_addressed(options, feed, fields)} for feed, url in urls.items()
    }
    return {
        "TIDINGS_FEEDS": ",".join(feeds),
        "TIDINGS_SOURCES": json.dumps(sources),
        **elections,
    }


def _of_a_feed(url: str) -> str:
    """Return *url* completed with the path of its default feed."""
    plain = url.rstrip("/")
    return plain if "/feeds/" in urlsplit(plain).path else f"{plain}/feeds/{DEFAULT_FEED}"


def _listed(name: str, text: str) -> list[str]:
    try:
        return listed(text, name)
    except InvalidFilter as error:
        raise Problem(f"--source {error}") from None


def _source_fields(options: HostOptions) -> Iterator[tuple[str, Any]]:
    for text in options.source:
        name, equals, value = text.partition("=")
        if not equals:
            raise Problem(f"--source {text}: must be NAME=VALUE")
        if name in _LISTS:
            yield name, _listed(name, value)
        elif name in _NUMBERS:
            yield name, _number(value)
        else:
            yield name, value


def _number(value: str) -> int | str:
    """Return *value* as a number; return other text unchanged, for `parse_sources` to refuse."""
    try:
        return whole(value, 0, RESTART_OFFSET_MAX)
    except ValueError:
        return value


def _addressed(options: HostOptions, feed: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Add the listening address of an elected host, unless the options give another one."""
    if fields.get("role") != "elected" or "address" in fields or not options.port:
        return fields
    return fields | {"address": f"http://{options.host}:{options.port}/feeds/{feed}"}
