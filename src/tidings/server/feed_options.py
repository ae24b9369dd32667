"""The command line options of a host: its feeds, their profiles and their upstreams.

Some options change the profile of a feed, as the command `tidings feed` does on a stage. The
options of chained feeds become the settings that a deployment of a stage would have.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from tidings.core.auth.passwords import SALT_BYTES, from_line, hash_password, is_password_of
from tidings.core.errors import InvalidFilter, InvalidSetting, parse_integer
from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.model.filters import parse_list
from tidings.core.replication.source import RESTART_OFFSET_MAX
from tidings.core.settings.documents import profile_fields
from tidings.core.settings.profiles import Profile, ProfileStore, validate
from tidings.core.settings.values import check_all, parse
from tidings.server.processes import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

Change = Callable[[Profile, str], Profile]  # the second argument is the name of the feed
DEFAULT_MAX_AGE_S = 28_800  # the time for which Triton keeps the items of a change feed
_PLAIN = Profile()
_LISTS = ("types", "parents")
_NUMBERS = ("restart_offset", "leaders")


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The options that change the profile of a feed.

    *feed_settings* has settings by name, in the form of a request. Other settings keep the stored
    value. If *resources* is empty, the stored resources and their maximum age are kept.
    """

    feed_settings: Mapping[str, Any] = field(default_factory=dict)
    resources: tuple[str, ...] = ()
    max_age: int = DEFAULT_MAX_AGE_S
    read_password_file: Path | None = None
    ingest_password_file: Path | None = None


@dataclass(frozen=True, slots=True)
class HostOptions(FeedOptions):
    """The options of every host: its address, its feeds, and their upstreams.

    *allow_hosts* are additional names of the host. *allow_origins* are the origins of pages that
    may access the host. *settings* replaces defaults of settings. *chain_from* and *chains*
    (FEED=URL) are the upstreams, and *source* (NAME=VALUE) configures how they are copied.
    *coordinator* is the URL of the leader election.
    """

    host: str = "127.0.0.1"
    port: int = 8042
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    feeds: str = "main"
    settings: Mapping[str, str] = field(default_factory=dict)
    chain_from: str | None = None
    chains: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    coordinator: str = ""
    demo_repo: Path | None = None
    demo: bool = False


def profile_change(options: FeedOptions, known: Profile = _PLAIN) -> Change | None:
    """Return the change that *options* make to a profile; None if they change nothing.

    Passwords of *known* keep their hashes.

    Raises:
        Problem: an option is invalid, or a file cannot be read.
    """
    try:
        values = profile_fields(options.feed_settings, DEFAULT_FEED)
        validate(replace(_PLAIN, **values))
        values |= _passwords(options, known)
        _declare(options, DEFAULT_FEED)
    except InvalidSetting as error:
        raise Problem(f"--{error.field.replace('_', '-')}: {error.rule}") from None
    if not values and not options.resources:
        return None

    def change(profile: Profile, feed: str) -> Profile:
        return replace(profile, **values, **_declare(options, feed))

    return change


def apply_change(profiles: ProfileStore, feeds: Iterable[str], change: Change) -> None:
    """Apply *change* to the profile of each of *feeds*; the other fields stay as they are."""
    for feed in feeds:
        profiles.save(feed, change(profiles.profile(feed), feed))


def _declare(options: FeedOptions, feed: str) -> dict[str, Any]:
    """Return the profile fields that declare the resources of *feed*; {} if there are none."""
    if not options.resources:
        return {}
    resources = tuple(parse(text, feed) for text in options.resources)
    check_all(resources, options.max_age)
    return {"resources": resources, "max_age_s": options.max_age}


def _passwords(options: FeedOptions, known: Profile) -> dict[str, Any]:
    files = {"read": options.read_password_file, "ingest": options.ingest_password_file}
    return {
        (name := f"{role}_passwords"): (
            _hash(f"--{role}-password-file {file}", file, getattr(known, name)),
        )
        for role, file in files.items()
        if file is not None
    }


def _hash(option: str, file: Path, known: tuple[str, ...]) -> str:
    try:
        password = from_line(file.read_bytes().decode())
    except OSError as error:
        raise Problem(f"{option} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Problem(f"{option}: the password must be UTF-8") from None
    except InvalidSetting as error:
        raise Problem(f"{option}: the password {error.rule}") from None
    now_ms = time.time_ns() // 1_000_000
    same = (each for each in known if is_password_of(password.encode(), each))
    return next(same, "") or hash_password(password, salt=os.urandom(SALT_BYTES), now_ms=now_ms)


def chained_feeds(options: HostOptions) -> dict[str, str]:
    """Return the upstream URL of each chained feed, by the feed's name.

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
            raise Problem("--chain: must be FEED=URL")  # without the text, which may have a secret
        urls[feed] = _of_a_feed(url)
    if options.source and not urls:
        raise Problem("--source configures chained feeds, so --chain-from or --chain is needed")
    return urls


def chain_settings(options: HostOptions) -> dict[str, str]:
    """Return the settings for chained feeds and elections; empty if the options configure neither.

    Raises:
        Problem: an option does not name a feed, or an option --source is invalid.
    """
    urls = chained_feeds(options)
    elections = {"TIDINGS_COORDINATOR": options.coordinator} if options.coordinator else {}
    if not urls:
        return elections
    feeds = dict.fromkeys([*filter(None, options.feeds.split(",")), *urls])
    fields = dict(_source_fields(options))
    sources = {
        feed: {"url": url, **_add_address(options, feed, fields)} for feed, url in urls.items()
    }
    return {"TIDINGS_FEEDS": ",".join(feeds), "TIDINGS_SOURCES": json.dumps(sources), **elections}


def _of_a_feed(url: str) -> str:
    """Return *url*, with the path of the default feed added if *url* names no feed."""
    plain = url.rstrip("/")
    return plain if "/feeds/" in urlsplit(plain).path else f"{plain}/feeds/{DEFAULT_FEED}"


def _parse_list(name: str, text: str) -> list[str]:
    try:
        return parse_list(text, name)
    except InvalidFilter as error:
        raise Problem(f"--source {error}") from None


def _source_fields(options: HostOptions) -> Iterator[tuple[str, Any]]:
    for text in options.source:
        name, equals, value = text.partition("=")
        if not equals:
            raise Problem(f"--source {text}: must be NAME=VALUE")
        if name in _LISTS:
            yield name, _parse_list(name, value)
        elif name in _NUMBERS:
            yield name, _number(value)
        else:
            yield name, value


def _number(value: str) -> int | str:
    """Return *value* as a number. Return other text unchanged, which `parse_sources` refuses."""
    try:
        return parse_integer(value, 0, RESTART_OFFSET_MAX)
    except ValueError:
        return value


def _add_address(options: HostOptions, feed: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return *fields*. Add the listening address if an elected feed has no address."""
    if fields.get("role") != "elected" or "address" in fields or not options.port:
        return fields
    return fields | {"address": f"http://{options.host}:{options.port}/feeds/{feed}"}
