"""The settings common to all hosts, with the variable, the default and the meaning of each.

A host reads the settings once from its environment, and parses them into a `Shared`. The address of
an archive is `s3://BUCKET/PREFIX` or `file:///FOLDER`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tidings.core import limits, tracing
from tidings.core.errors import InvalidFeed, parse_integer
from tidings.core.model.feeds import DEFAULT_FEED, Retention, check_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidings.core.auth.oidc_claims import Issuer
    from tidings.core.replication.source import Sources

NUMBER_MAX = 1_000_000_000  # maximum of a number in a setting; as hours, this is 100,000 years
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+")
NO_ORIGINS = "none"  # means no origins; an empty value means the default, as for every setting
ARCHIVE_FOLDER = "archive"  # folder at the address of an archive; it has a folder for each feed
LEDGER_FOLDER = "erasures"  # the folder of the ledger of erasures, next to the archive
ARCHIVE_RULE = "must be s3://BUCKET/PREFIX or file:///FOLDER"


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable. It is required if *default* is None."""

    variable: str
    default: str | None
    meaning: str


SHARED = (
    Setting("TIDINGS_FEEDS", DEFAULT_FEED, "names of the feeds, comma-separated"),
    Setting("TIDINGS_RETENTION_HOURS", "168", "hours for which the log keeps its pages"),
    Setting("TIDINGS_CONSUMER_HOURS", "720", "hours for which the log waits for named consumers"),
    Setting("TIDINGS_RECORDS_MIN", "1000", "pages that the log keeps regardless of their age"),
    Setting("TIDINGS_OPEN", "false", "true: a feed without password, key, user or issuer is open"),
    Setting(
        "TIDINGS_CORS_ORIGINS",
        "*",
        "origins of web pages that may read, and write if named; or none",
    ),
    Setting("TIDINGS_HOOKS_PRIVATE", "false", "true: webhooks may have private addresses"),
    Setting("TIDINGS_OIDC", "", "JSON with the issuer, audience and claim of accepted tokens"),
    Setting("TIDINGS_TRACES", tracing.REQUESTED, "traced requests: off, asked or all"),
    Setting(
        "TIDINGS_LATE_SECONDS", "10", "age in seconds above which a follower logs a page; 0: never"
    ),
    Setting("TIDINGS_URL_PREFIX", "", "path below which a custom domain serves the feed"),
    Setting("TIDINGS_SOURCES", "", "JSON with the chained feeds and their sources"),
)


@dataclass(frozen=True, slots=True)
class Shared:
    """The parsed values of `SHARED`."""

    feeds: frozenset[str]
    retention: Retention
    consumer_cap: Retention
    open: bool
    cors_origins: tuple[str, ...]
    hooks_private: bool
    url_prefix: str
    sources: Sources
    issuer: Issuer | None
    traces: str
    late_ms: int

    @property
    def tombstone_ms(self) -> int:
        """Return the lifetime of tombstones, which is longer than the retention of the log."""
        return self.retention.age_ms + limits.TOMBSTONE_SLACK_MS

    @property
    def page_ms(self) -> int:
        """Return the lifetime of a page, which is a day longer than any reader may need the page.

        The lifetime includes the time that the log waits for a named consumer. The floor therefore
        passes a page before the page expires, and no page has to be renewed for consumers.
        """
        return max(self.retention.age_ms, self.consumer_cap.age_ms) + limits.TTL_SLACK_MS


class MissingSetting(Exception):
    def __init__(self, setting: Setting) -> None:
        super().__init__(f"{setting.variable} is not set: {setting.meaning}")


class WrongSetting(Exception):
    """A setting breaks its rule. *value* is None if it may be secret and must not be shown."""

    def __init__(self, variable: str, value: str | None, rule: str) -> None:
        setting = variable if value is None else f"{variable}={value!r}"
        super().__init__(f"{setting}: {rule}")


def values_of(environment: Mapping[str, str], settings: Iterable[Setting]) -> dict[str, str]:
    """Return the value of each of *settings* in *environment*, by variable.

    If a variable is empty, its setting has the default.

    Raises:
        MissingSetting: a variable without a default is absent or empty.
    """
    return {setting.variable: _value(environment, setting) for setting in settings}


def parse(values: Mapping[str, str], *, coordinated: bool) -> Shared:
    """Parse *values*, which has a value for each setting in `SHARED`.

    *coordinated* is True if the host has a coordinator for the elections of leaders.

    Raises:
        WrongSetting: a value breaks its rule.
    """
    feeds = _feeds(values["TIDINGS_FEEDS"])
    issuer = _issuer(values["TIDINGS_OIDC"])
    return Shared(
        feeds=feeds,
        retention=Retention(_retention_ms(values), parse_setting(values, "TIDINGS_RECORDS_MIN", 0)),
        consumer_cap=_consumer_cap(values),
        open=_yes_or_no(values, "TIDINGS_OPEN")
        and issuer is None,  # a feed with an issuer is never open
        cors_origins=origins(values["TIDINGS_CORS_ORIGINS"]),
        hooks_private=_yes_or_no(values, "TIDINGS_HOOKS_PRIVATE"),
        url_prefix=_prefix(values),
        sources=_sources(values, feeds, coordinated=coordinated),
        issuer=issuer,
        traces=_traces(values),
        late_ms=1000 * parse_setting(values, "TIDINGS_LATE_SECONDS", 0),
    )


def origins(text: str) -> tuple[str, ...]:
    """Return the origins in TIDINGS_CORS_ORIGINS.

    Raises:
        WrongSetting: one of them cannot be the value of an Origin header.
    """
    found = () if text == NO_ORIGINS else tuple(_list(text))
    if not all(map(_ORIGIN.fullmatch, found)):
        rule = "must be SCHEME://HOST or SCHEME://HOST:PORT, `*`, or none"
        raise WrongSetting("TIDINGS_CORS_ORIGINS", text, rule)
    return found


def _feeds(text: str) -> frozenset[str]:
    try:
        return frozenset(map(check_name, _list(text)))
    except InvalidFeed as error:
        raise WrongSetting("TIDINGS_FEEDS", text, error.rule) from None


def _value(environment: Mapping[str, str], setting: Setting) -> str:
    value = environment.get(setting.variable) or setting.default
    if value is None:
        raise MissingSetting(setting)
    return value


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_setting(
    values: Mapping[str, str], variable: str, least: int, largest: int = NUMBER_MAX
) -> int:
    """Return *variable* in *values* as an integer.

    Raises:
        WrongSetting: the value is not a whole number, or is out of bounds.
    """
    text = values[variable]
    try:
        return parse_integer(text, least, largest)
    except ValueError as error:
        raise WrongSetting(variable, text, str(error)) from None


def _yes_or_no(values: Mapping[str, str], variable: str) -> bool:
    if values[variable] not in ("true", "false"):
        raise WrongSetting(variable, values[variable], "must be true or false")
    return values[variable] == "true"


def _traces(values: Mapping[str, str]) -> str:
    variable = "TIDINGS_TRACES"
    if values[variable] not in tracing.MODES:
        rule = f"must be {', '.join(tracing.MODES[:-1])} or {tracing.MODES[-1]}"
        raise WrongSetting(variable, values[variable], rule)
    return values[variable]


def _retention_ms(values: Mapping[str, str]) -> int:
    least = limits.RETENTION_MS_MIN // 3_600_000
    return parse_setting(values, "TIDINGS_RETENTION_HOURS", least) * 3_600_000


def _consumer_cap(values: Mapping[str, str]) -> Retention:
    """Return the retention for consumers, which is at least as long as the log's own retention."""
    hours = parse_setting(values, "TIDINGS_CONSUMER_HOURS", 1)
    age_ms = max(_retention_ms(values), hours * 3_600_000)
    return Retention(age_ms, parse_setting(values, "TIDINGS_RECORDS_MIN", 0))


def _sources(values: Mapping[str, str], feeds: frozenset[str], *, coordinated: bool) -> Sources:
    """Parse the sources. Import the parser only if it is needed; few deployments have sources."""
    text = values["TIDINGS_SOURCES"]
    if not text:
        return {}
    from tidings.core.replication.source import WrongSource, parse_sources

    try:
        return parse_sources(text, feeds, coordinated=coordinated)
    except WrongSource as error:
        raise WrongSetting("TIDINGS_SOURCES", None, str(error)) from None


def _issuer(text: str) -> Issuer | None:
    """Parse the issuer. Import the parser only if it is needed; few deployments have an issuer."""
    if not text:
        return None
    from tidings.core.auth import oidc_claims
    from tidings.core.errors import InvalidSetting

    try:
        return oidc_claims.issuer_from(text)
    except InvalidSetting as error:
        raise WrongSetting("TIDINGS_OIDC", None, str(error)) from None


def _prefix(values: Mapping[str, str]) -> str:
    """Return the prefix with a leading slash, or ""."""
    variable = "TIDINGS_URL_PREFIX"
    text = values[variable]
    if text.endswith("/"):
        rule = "Invalid URI prefix: Must not end with a slash"
        raise WrongSetting(variable, text, rule)
    if not re.fullmatch(r"[A-Za-z0-9/_.~-]*", text):
        raise WrongSetting(variable, text, "must be letters, digits and / _ . ~ -")
    return f"/{text.lstrip('/')}" if text else ""


class WrongArchive(Exception):
    def __init__(self, url: str, rule: str = ARCHIVE_RULE) -> None:
        super().__init__(f"{url!r}: {rule}")


@dataclass(frozen=True, slots=True)
class ArchiveUrl:
    """The parsed address of an archive; *bucket* is "" for a folder.

    A feed is in `archive/{feed}/` below *path*.
    """

    bucket: str
    path: str


def parse_archive_url(url: str) -> ArchiveUrl:
    """Parse the address *url*.

    Raises:
        WrongArchive: *url* has neither of the two forms.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise WrongArchive(url) from None
    plain = not (parts.query or parts.fragment)
    if parts.scheme == "s3" and parts.netloc and plain:
        prefix = parts.path.strip("/")
        return ArchiveUrl(parts.netloc, f"{prefix}/" if prefix else "")
    if parts.scheme == "file" and not parts.netloc and len(parts.path) > 1 and plain:
        return ArchiveUrl("", unquote(parts.path))
    raise WrongArchive(url)
