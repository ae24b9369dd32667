"""The options of a read or a write, checked before anything is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidings.client import auth
from tidings.client.errors import NoPassword
from tidings.core import limits
from tidings.core.errors import InvalidFeed, InvalidFilter
from tidings.core.model import filters
from tidings.core.model.feeds import DEFAULT_FEED, check_name
from tidings.core.model.filters import Filter
from tidings.spark.errors import WrongOption

LOG, STATE, ARCHIVE = "log", "state", "archive"
COPY, OLDEST, NOW = "copy", "oldest", "now"
FAIL, TAKE = "fail", "take"
PARTITIONS = 8  # a few for each core of a laptop; a task costs a fifth of a second
PARTITIONS_MAX = 100_000  # more tasks than that are a slip
MAX_PAGES = 5_000  # of a batch: five seconds of the busiest feed, so that it is caught up with
MAX_BUCKETS = 8  # of a batch of a copy: an eighth of the state

_CHOICES = {
    "what": (LOG, STATE),
    "from": (LOG, ARCHIVE),
    "compacted": (FAIL, TAKE),
    "felloff": (COPY, FAIL),
}
_NUMBERS = {
    "partitions": (PARTITIONS, PARTITIONS_MAX),
    "maxpages": (MAX_PAGES, 10**9),
    "maxbuckets": (MAX_BUCKETS, limits.BUCKETS),
}
_TABLES = ("logtable", "statetable", "controltable")
_TEXTS = (
    *("url", "feed", "password", "passwordfile", "stage", "endpoint", "region", *_TABLES),
    *("archive", "since", "until", "atleast", "start", "types", "parents", "columns", "job"),
)
_OF_SPARK = ("checkpointlocation", "queryname")  # which Spark passes on
# As they are written; Spark tells them in lower case.
SPELLED = {
    name.lower(): name
    for name in (
        *("passwordFile", "logTable", "stateTable", "controlTable"),
        *("fellOff", "maxPages", "maxBuckets", "atLeast"),
    )
}
NAMES = frozenset((*_TEXTS, *_CHOICES, *_NUMBERS))


@dataclass(frozen=True, slots=True)
class Where:
    """How a feed is reached: over HTTP, by its tables, or by its archive alone."""

    feed: str = DEFAULT_FEED
    url: str = ""
    password: str = field(default="", repr=False)
    stage: str = ""
    endpoint: str = ""
    region: str = ""
    tables: tuple[str, ...] = ()
    archive: str = ""
    takes_compacted: bool = False
    from_archive: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    where: Where
    wanted: Filter
    what: str
    since: str
    until: str
    at_least: str
    start: str
    columns: tuple[str, ...]
    partitions: int
    max_pages: int
    max_buckets: int
    fails: bool
    job: str


def parse(given: Mapping[str, str]) -> Options:
    """
    Raises:
        WrongOption: unknown, or with a value that breaks its rule.
    """
    found = {name.lower(): value for name, value in given.items()}
    for name, value in given.items():
        if name.lower() not in NAMES and name.lower() not in _OF_SPARK:
            raise WrongOption(name, f"is not known; there are {', '.join(_spelled_names())}")
        if not value:
            raise WrongOption(name, "must not be empty")
    chosen = {name: _choice(found, name) for name in _CHOICES}
    numbers = {name: _number(found, name) for name in _NUMBERS}
    return Options(
        where=_where(found, chosen),
        wanted=_filter(found),
        what=chosen["what"],
        since=found.get("since", OLDEST),
        until=found.get("until", ""),
        at_least=_at_least(found, chosen["what"]),
        start=found.get("start", COPY),
        columns=tuple(found["columns"].replace(" ", "").split(",")) if "columns" in found else (),
        partitions=numbers["partitions"],
        max_pages=numbers["maxpages"],
        max_buckets=numbers["maxbuckets"],
        fails=chosen["felloff"] == FAIL,
        job=found.get("job", ""),
    )


def _at_least(found: Mapping[str, str], what: str) -> str:
    if "atleast" in found and what != STATE:
        raise WrongOption("atLeast", "is for the state: give what=state")
    return found.get("atleast", NOW)


def _spelled_names() -> list[str]:
    return sorted(SPELLED.get(name, name) for name in NAMES)


def _choice(found: Mapping[str, str], name: str) -> str:
    choices = _CHOICES[name]
    value = found.get(name, choices[0]).lower()
    if value not in choices:
        raise WrongOption(SPELLED.get(name, name), f"must be {' or '.join(choices)}", value)
    return value


def _number(found: Mapping[str, str], name: str) -> int:
    default, most = _NUMBERS[name]
    value = found.get(name, str(default))
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= most):
        rule = f"must be a whole number from 1 to {most}"
        raise WrongOption(SPELLED.get(name, name), rule, value)
    return int(value)


def _where(found: Mapping[str, str], chosen: Mapping[str, str]) -> Where:
    _check_backends(found)
    feed = found.get("feed", DEFAULT_FEED)
    try:
        check_name(feed)
    except InvalidFeed as error:
        raise WrongOption("feed", error.rule, feed) from None
    return Where(
        feed=feed,
        url=found.get("url", ""),
        password=_password(found),
        stage=found.get("stage", ""),
        endpoint=found.get("endpoint", ""),
        region=found.get("region", ""),
        tables=tuple(found[name] for name in _TABLES if name in found),
        archive=found.get("archive", ""),
        takes_compacted=chosen["compacted"] == TAKE,
        from_archive=chosen["from"] == ARCHIVE,
    )


def _check_backends(found: Mapping[str, str]) -> None:
    """One backend for the log and the state at most, and the archive beside tables alone."""
    tables = [name for name in _TABLES if name in found]
    if tables and len(tables) < len(_TABLES):
        missing = next(name for name in _TABLES if name not in found)
        raise WrongOption(SPELLED[missing], "is needed beside the other tables")
    local = "endpoint" in found and not tables
    ways = sum((("url" in found), ("stage" in found), bool(tables), local))
    if ways > 1:
        raise WrongOption("url", "names one way to a feed; give url, stage, tables or endpoint")
    if not ways and "archive" not in found:
        raise WrongOption("url", "is needed, or stage, tables, endpoint or archive instead")
    if "url" in found and "archive" in found:
        raise WrongOption("archive", "is read beside tables, not beside url")
    from_archive = not ways or found.get("from", "").lower() == ARCHIVE
    if from_archive and found.get("what", "").lower() == STATE:
        rule = "state is not in the archive; give url, stage, tables or endpoint"
        raise WrongOption("what", rule)
    if from_archive and "archive" not in found:
        raise WrongOption("archive", "is needed to read from it")


def _password(found: Mapping[str, str]) -> str:
    if "passwordfile" not in found:
        return found.get("password", "")
    if "password" in found:
        raise WrongOption("passwordFile", "is given beside password; give one of them")
    try:
        return auth.from_file(Path(found["passwordfile"]))
    except NoPassword as error:
        raise WrongOption("passwordFile", str(error)) from None


def _filter(found: Mapping[str, str]) -> Filter:
    try:
        return filters.parse(found.get("types"), found.get("parents"))
    except InvalidFilter as error:
        raise WrongOption(error.field, error.rule) from None
