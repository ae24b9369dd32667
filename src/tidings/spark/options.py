"""The options of reads and writes, the offsets of streams, and the errors of the data source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql.datasource import InputPartition

from tidings.client.errors import NoPassword
from tidings.client.files import read_password
from tidings.core import limits
from tidings.core.errors import InvalidFeed, InvalidFilter
from tidings.core.model import cursors, filters
from tidings.core.model.cursors import PAGE_END, Place, Replication
from tidings.core.model.feeds import DEFAULT_FEED, check_name
from tidings.core.model.filters import Filter


class SparkError(Exception):
    """The base class of the errors of the data source. Spark shows the message."""


class WrongOption(SparkError):
    """An option is invalid. The message never contains a password."""

    def __init__(self, name: str, rule: str, value: str | None = None) -> None:
        given = "" if value is None else f", got {value!r}"
        super().__init__(f"option {name}: {rule}{given}")


class WrongColumn(SparkError):
    """A column is unknown, missing, or has another type."""


class NotSpark(SparkError):
    def __init__(self) -> None:
        super().__init__(
            "the data source tidings needs Apache Spark: Sail reads a stream as one batch, without"
            " a checkpoint"
        )


class Gone(SparkError):
    """Pages to be read no longer exist."""


class Lagging(SparkError):
    """The state does not include the requested page, and does not advance."""


class NotAppended(SparkError):
    """The feed rejected operations; nothing of their page was appended."""


At = Place | Replication
CURSOR, _BEGUN = "cursor", "begun"


@dataclass(frozen=True, slots=True)
class Offset:
    at: At
    begun: At

    def as_json(self) -> dict[str, str]:
        return {CURSOR: self.at.encode(), _BEGUN: self.begun.encode()}


@dataclass(frozen=True)
class Log(InputPartition):
    """The operations after the place *after*, up to and including the place *last*.

    These operations are the content of a batch, or the part of a batch that one task reads.
    """

    after: Place
    last: Place


@dataclass(frozen=True)
class Rows(InputPartition):
    """The buckets of a copy of the state, from `copy.bucket` up to, but not including, *end*.

    These buckets are the content of a batch, or the part of a batch that one task reads. With
    *resets*, a row `reset` precedes the rows of the buckets; at this row, readers discard all
    earlier rows.
    """

    copy: Replication
    end: int
    resets: bool = False


def offset_from(stored: Mapping[str, str]) -> Offset:
    """Return the offset that `as_json` encoded."""
    at, begun = cursors.parse(stored[CURSOR]), cursors.parse(stored[_BEGUN])
    assert isinstance(at, Place | Replication) and isinstance(begun, Place | Replication)
    return Offset(at, begun)


def between(start: Offset, end: Offset) -> Log | Rows | None:
    """Return the content of the batch from *start* to *end*; None if it is empty."""
    at = start.at if start.begun == end.begun else end.begun
    if at == end.at:
        return None
    if isinstance(end.at, Place):
        return Log(in_log(at), end.at)
    goes_on = isinstance(at, Replication) and replace(at, bucket=end.at.bucket) == end.at
    first = at.bucket if goes_on and isinstance(at, Replication) else 0
    resets = not goes_on and end.at.since_s == 0
    return Rows(replace(end.at, bucket=first), end.at.bucket, resets)


def copying(at: At) -> bool:
    """Return True if *at* is in a copy of the state that is incomplete."""
    return isinstance(at, Replication) and at.bucket < limits.BUCKETS


def in_log(at: At) -> Place:
    """Return the place after which to read the log; for a copy, the end of its page."""
    return at if isinstance(at, Place) else Place(at.page, PAGE_END, at.since_s)


LOG, STATE, ARCHIVE = "log", "state", "archive"
COPY, OLDEST, NOW = "copy", "oldest", "now"
FAIL, TAKE = "fail", "take"
# The default of `partitions`: several tasks per core of a laptop. A task costs a fifth of a second.
PARTITIONS = 8
PARTITIONS_MAX = 100_000  # a larger number is a mistake
# The default of `maxPages`: the pages that the busiest feed commits in five seconds. Batches have
# to be that large, so that a stream can catch up.
MAX_PAGES = 5_000
MAX_BUCKETS = 8  # the default of `maxBuckets`: an eighth of the state

_CHOICES = {
    "what": (LOG, STATE),
    "from": (LOG, ARCHIVE),
    "compacted": (FAIL, TAKE),
    "fellOff": (COPY, FAIL),
}
_NUMBERS = {
    "partitions": (PARTITIONS, PARTITIONS_MAX),
    "maxPages": (MAX_PAGES, 10**9),
    "maxBuckets": (MAX_BUCKETS, limits.BUCKETS),
}
_TABLES = ("logTable", "stateTable", "controlTable")
_TEXTS = (
    *("url", "feed", "password", "passwordFile", "stage", "endpoint", "region", *_TABLES),
    *("archive", "since", "until", "atLeast", "start", "types", "parents", "columns", "job"),
)
_OF_SPARK = ("checkpointlocation", "queryname")  # Spark's own options, which Spark also passes here
# The spelling of each option by its lower-case name, because Spark passes lower-case names.
NAMES = {name.lower(): name for name in (*_TEXTS, *_CHOICES, *_NUMBERS)}


@dataclass(frozen=True, slots=True)
class Where:
    """The way to read a feed: over HTTP, from its tables, or only from its archive."""

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


def parse(written: Mapping[str, str]) -> Options:
    """Parse and validate options.

    Raises:
        WrongOption: an option is unknown, or its value is invalid.
    """
    given = {name.lower(): value for name, value in written.items()}
    for name, value in written.items():
        if name.lower() not in NAMES and name.lower() not in _OF_SPARK:
            known = ", ".join(sorted(NAMES.values()))
            raise WrongOption(name, f"is unknown; the options are {known}")
        if not value:
            raise WrongOption(name, "must not be empty")
    chosen = {name: _choice(given, name) for name in _CHOICES}
    numbers = {name: _number(given, name) for name in _NUMBERS}
    if "atleast" in given and chosen["what"] != STATE:
        raise WrongOption("atLeast", "is valid only with what=state")
    return Options(
        where=_where(given, chosen),
        wanted=_filter(given),
        what=chosen["what"],
        since=given.get("since", OLDEST),
        until=given.get("until", ""),
        at_least=given.get("atleast", NOW),
        start=given.get("start", COPY),
        columns=tuple(given["columns"].replace(" ", "").split(",")) if "columns" in given else (),
        partitions=numbers["partitions"],
        max_pages=numbers["maxPages"],
        max_buckets=numbers["maxBuckets"],
        fails=chosen["fellOff"] == FAIL,
        job=given.get("job", ""),
    )


def _choice(given: Mapping[str, str], name: str) -> str:
    choices = _CHOICES[name]
    value = given.get(name.lower(), choices[0]).lower()
    if value not in choices:
        raise WrongOption(name, f"must be {' or '.join(choices)}", value)
    return value


def _number(given: Mapping[str, str], name: str) -> int:
    default, most = _NUMBERS[name]
    value = given.get(name.lower(), str(default))
    if not (value.isascii() and value.isdigit() and 1 <= int(value) <= most):
        raise WrongOption(name, f"must be a whole number from 1 to {most}", value)
    return int(value)


def _where(given: Mapping[str, str], chosen: Mapping[str, str]) -> Where:
    _check_backends(given)
    feed = given.get("feed", DEFAULT_FEED)
    try:
        check_name(feed)
    except InvalidFeed as error:
        raise WrongOption("feed", error.rule, feed) from None
    return Where(
        feed=feed,
        url=given.get("url", ""),
        password=_password(given),
        stage=given.get("stage", ""),
        endpoint=given.get("endpoint", ""),
        region=given.get("region", ""),
        tables=tuple(_tables(given).values()),
        archive=given.get("archive", ""),
        takes_compacted=chosen["compacted"] == TAKE,
        from_archive=chosen["from"] == ARCHIVE,
    )


def _check_backends(given: Mapping[str, str]) -> None:
    """Check that the options name one way to the feed, and an archive if it is to be read."""
    tables = _tables(given)
    if tables and len(tables) < len(_TABLES):
        missing = next(name for name in _TABLES if name not in tables)
        raise WrongOption(missing, "is required with the other tables")
    local = "endpoint" in given and not tables
    ways = sum((("url" in given), ("stage" in given), bool(tables), local))
    if ways > 1:
        rule = "more than one way to the feed is given; give one of url, stage, tables or endpoint"
        raise WrongOption("url", rule)
    if not ways and "archive" not in given:
        raise WrongOption("url", "is required, unless stage, tables, endpoint or archive is given")
    if "url" in given and "archive" in given:
        raise WrongOption("archive", "is not valid with url")
    from_archive = not ways or given.get("from", "").lower() == ARCHIVE
    if from_archive and given.get("what", "").lower() == STATE:
        rule = "state is not in the archive; give url, stage, tables or endpoint"
        raise WrongOption("what", rule)
    if from_archive and "archive" not in given:
        raise WrongOption("archive", "is required with from=archive")


def _tables(given: Mapping[str, str]) -> dict[str, str]:
    return {name: given[name.lower()] for name in _TABLES if name.lower() in given}


def _password(given: Mapping[str, str]) -> str:
    if "passwordfile" not in given:
        return given.get("password", "")
    if "password" in given:
        raise WrongOption("passwordFile", "is given together with password; give one of them")
    try:
        return read_password(Path(given["passwordfile"]))
    except NoPassword as error:
        raise WrongOption("passwordFile", str(error)) from None


def _filter(given: Mapping[str, str]) -> Filter:
    try:
        return filters.parse(given.get("types"), given.get("parents"))
    except InvalidFilter as error:
        raise WrongOption(error.field, error.rule) from None
