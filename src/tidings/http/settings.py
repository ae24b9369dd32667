"""The settings of a host: each is declared once, as a field of the class of the hosts that have it.

`Shared` has the settings of every host. A host derives a class with its own settings, and reads all
of them once from its environment. The address of an archive is `s3://BUCKET/PREFIX` or
`file:///FOLDER`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from tidings.core import limits, tracing
from tidings.core.errors import InvalidFeed, TidingsError, parse_integer
from tidings.core.model.feeds import DEFAULT_FEED, Retention, check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidings.core.auth.oidc_claims import Issuer
    from tidings.core.replication.source import Sources

NUMBER_MAX = 1_000_000_000  # maximum of a number in a setting; as hours, this is 100,000 years
HOUR_MS = 3_600_000
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+")
NO_ORIGINS = "none"  # means no origins; an empty value means the default, as for every setting
ARCHIVE_FOLDER = "archive"  # folder at the address of an archive; it has a folder for each feed
LEDGER_FOLDER = "erasures"  # the folder of the ledger of erasures, next to the archive
ARCHIVE_RULE = "must be s3://BUCKET/PREFIX or file:///FOLDER"


class MissingSetting(Exception):
    def __init__(self, setting: Setting) -> None:
        super().__init__(f"{setting.variable} is not set: {setting.meaning}")


class WrongSetting(Exception):
    """A setting breaks its rule. *value* is None if it may be secret and must not be shown."""

    def __init__(self, variable: str, value: str | None, rule: str) -> None:
        self.variable = variable
        setting = variable if value is None else f"{variable}={value!r}"
        super().__init__(f"{setting}: {rule}")


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable. It is required if *default* is None.

    *parse* returns the parsed value, or raises an error with the rule as its text. The value of a
    *secret* setting is never shown. *option* names the options of a server that also set it.
    """

    variable: str
    default: str | None
    meaning: str
    parse: Callable[[str], Any] = str
    option: str = ""
    secret: bool = False

    def read(self, environment: Mapping[str, str]) -> Any:
        """Return the parsed value in *environment*. An empty variable means the default.

        Raises:
            MissingSetting: the variable has no default, and is absent or empty.
            WrongSetting: the value breaks the rule.
        """
        text = environment.get(self.variable) or self.default
        if text is None:
            raise MissingSetting(self)
        try:
            return self.parse(text)
        except (ValueError, TidingsError) as error:
            shown = None if self.secret else text
            raise WrongSetting(self.variable, shown, str(error)) from None


def setting(*arguments: Any, **more: Any) -> Any:
    """Return a field of a class of settings. The arguments are those of `Setting`."""
    return field(metadata={"setting": Setting(*arguments, **more)})


def whole(least: int, largest: int = NUMBER_MAX, unit: int = 1) -> Callable[[str], int]:
    """Return a parser of whole numbers from *least* to *largest*, which multiplies by *unit*."""
    return lambda text: unit * parse_integer(text, least, largest)


def one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a parser that replaces each key of *values* by its value, and refuses other texts."""
    *first, last = values

    def parse(text: str) -> Any:
        if text not in values:
            raise ValueError(f"must be {', '.join(first)} or {last}")
        return values[text]

    return parse


def origins(text: str) -> tuple[str, ...]:
    """Return the origins in TIDINGS_CORS_ORIGINS.

    Raises:
        ValueError: one of them cannot be the value of an Origin header.
    """
    found = () if text == NO_ORIGINS else tuple(_list(text))
    if not all(map(_ORIGIN.fullmatch, found)):
        raise ValueError("must be SCHEME://HOST or SCHEME://HOST:PORT, `*`, or none")
    return found


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _feeds(text: str) -> frozenset[str]:
    try:
        return frozenset(map(check_name, _list(text)))
    except InvalidFeed as error:
        raise ValueError(error.rule) from None


def _issuer(text: str) -> Issuer | None:
    """Parse the issuer. Import the parser only if it is needed; few deployments have an issuer."""
    if not text:
        return None
    from tidings.core.auth import oidc_claims

    return oidc_claims.issuer_from(text)


def _prefix(text: str) -> str:
    """Return the prefix with a leading slash, or ""."""
    if text.endswith("/"):
        raise ValueError("Invalid URI prefix: Must not end with a slash")
    if not re.fullmatch(r"[A-Za-z0-9/_.~-]*", text):
        raise ValueError("must be letters, digits and / _ . ~ -")
    return f"/{text.lstrip('/')}" if text else ""


_BOOL = one_of({"true": True, "false": False})
_TRACES = one_of({mode: mode for mode in tracing.MODES})
_HOURS = whole(limits.RETENTION_MS_MIN // HOUR_MS, unit=HOUR_MS)


@dataclass(frozen=True, slots=True)
class Shared:
    """The settings of every host."""

    feeds: frozenset[str] = setting(
        "TIDINGS_FEEDS", DEFAULT_FEED, "names of the feeds, comma-separated", _feeds, "--feeds"
    )
    retention_ms: int = setting(
        "TIDINGS_RETENTION_HOURS", "168", "hours for which the log keeps its pages", _HOURS
    )
    consumer_ms: int = setting(
        "TIDINGS_CONSUMER_HOURS", "720", "hours for which the log waits for consumers", _HOURS
    )
    records_min: int = setting(
        "TIDINGS_RECORDS_MIN", "1000", "pages that the log keeps regardless of their age", whole(0)
    )
    open: bool = setting(
        "TIDINGS_OPEN", "false", "true: a feed without password, key, user or issuer is open", _BOOL
    )
    cors_origins: tuple[str, ...] = setting(
        "TIDINGS_CORS_ORIGINS",
        "*",
        "origins of web pages that may read, and write if named; or none",
        origins,
        "--allow-origin",
    )
    hooks_private: bool = setting(
        "TIDINGS_HOOKS_PRIVATE", "false", "true: webhooks may have private addresses", _BOOL
    )
    issuer: Issuer | None = setting(
        "TIDINGS_OIDC",
        "",
        "JSON with the issuer, audience and claim of accepted tokens",
        _issuer,
        secret=True,
    )
    traces: str = setting(
        "TIDINGS_TRACES", tracing.REQUESTED, "traced requests: off, asked or all", _TRACES
    )
    late_ms: int = setting(
        "TIDINGS_LATE_SECONDS",
        "10",
        "age in seconds above which a follower logs a page; 0: never",
        whole(0, unit=1000),
    )
    url_prefix: str = setting(
        "TIDINGS_URL_PREFIX", "", "path below which a custom domain serves the feed", _prefix
    )
    #: `read` parses the sources, because their rules depend on other settings.
    sources: Sources = setting(
        "TIDINGS_SOURCES",
        "",
        "JSON with the chained feeds and their sources",
        option="--chain-from, --chain or --source",
        secret=True,
    )

    @classmethod
    def declared(cls) -> tuple[Setting, ...]:
        """Return the settings of this class, in the order of their fields."""
        return tuple(each.metadata["setting"] for each in fields(cls))

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Return the settings in *environment*.

        Raises:
            MissingSetting: a variable without a default is absent or empty.
            WrongSetting: a value breaks its rule.
        """
        values = {each.name: each.metadata["setting"].read(environment) for each in fields(cls)}
        if text := values.pop("sources"):
            from tidings.core.replication.source import WrongSource, parse_sources

            is_coordinated = values.get("coordinator") is not None
            try:
                sources = parse_sources(text, values["feeds"], coordinated=is_coordinated)
            except WrongSource as error:
                raise WrongSetting("TIDINGS_SOURCES", None, str(error)) from None
        return cls(**values, sources=sources if text else {})

    @property
    def retention(self) -> Retention:
        return Retention(self.retention_ms, self.records_min)

    @property
    def consumer_cap(self) -> Retention:
        """Return the retention for consumers, which is at least as long as that of the log."""
        return Retention(max(self.retention_ms, self.consumer_ms), self.records_min)

    @property
    def tombstone_ms(self) -> int:
        """Return the lifetime of tombstones, which is longer than the retention of the log."""
        return self.retention_ms + limits.TOMBSTONE_SLACK_MS

    @property
    def page_ms(self) -> int:
        """Return the lifetime of a page, which is a day longer than any reader may need the page.

        The lifetime includes the time that the log waits for a named consumer. The floor therefore
        passes a page before the page expires, and no page has to be renewed for consumers.
        """
        return self.consumer_cap.age_ms + limits.TTL_SLACK_MS


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
