"""The rules for rows: the columns that a reader publishes, and rows that a feed would refuse."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tidings.core.errors import Rejected
from tidings.core.limits import ID_BYTES_MAX, JSON_DEPTH_MAX, OPERATION_BYTES_MAX
from tidings.core.model.json_body import NDJSON_TYPE, lines_from
from tidings.core.model.operations import to_ascii_json
from tidings.pipelines.messages import WrongPipeline

Names = str | Sequence[str]
Operation = dict[str, Any]

STOP, SKIP, REPORT = "stop", "skip", "report"
REASON = "too_large"  # the field of a report with the reason
_SURE_BYTES = OPERATION_BYTES_MAX - 1024  # the log adds a timestamp and empty fields to a line
_SURE_CHARS = ID_BYTES_MAX // 4  # a character has up to four bytes
# A row of more bytes may be too large, because a byte may become an escape of six in JSON.
LARGE_BYTES = OPERATION_BYTES_MAX // 6
LARGE_ROWS = 1000  # rows that a check counts; more rows need the same remedy
LARGE_S = 60  # the longest search for such rows, for a table of about a hundred gigabytes
_NAMES_MAX = 4096  # cached names of columns; documents may have any number of them
# Exact names of columns that are published only if they are named (ADR 85), without `_` and `-`.
# fmt: off
_SECRETS = frozenset({
    "password", "passwd", "pwd", "passphrase", "passwordhash", "passworddigest", "passwordsalt",
    "hashedpassword", "encryptedpassword", "secret", "secretkey", "clientsecret", "secrethash",
    "token", "tokenhash", "accesstoken", "refreshtoken", "authtoken", "apitoken", "sessiontoken",
    "resettoken", "resetpasswordtoken", "remembertoken", "apikey", "apisecret", "privatekey",
    "accesskey", "secretaccesskey", "otpsecret", "totpsecret", "mfasecret", "credentials",
})
# fmt: on
_log = logging.getLogger("tidings.pipelines")


@lru_cache(_NAMES_MAX)
def is_secret(name: str) -> bool:
    """Return True if *name* is one of the exact names of columns with secrets."""
    return name.lower().replace("_", "").replace("-", "") in _SECRETS


def names_of(columns: Names) -> tuple[str, ...]:
    return tuple(filter(None, [columns] if isinstance(columns, str) else columns))


class SizeRule:
    """The rule for operations of *name* that the feed would refuse because they are too large.

    *too_large* is `stop`, `skip` or `report`. *keys* are the fields with the key.

    Raises:
        WrongPipeline: *too_large* is unknown.
    """

    def __init__(self, name: str, keys: Sequence[str], too_large: str) -> None:
        if too_large not in (STOP, SKIP, REPORT):
            rule = f"too_large must be {STOP!r}, {SKIP!r} or {REPORT!r}"
            raise WrongPipeline(f"{rule}, not {too_large!r}")
        self.name, self.keys, self._too_large = name, tuple(keys), too_large

    def refit(self, operation: Operation, reason: str) -> Operation | None:
        """Return an operation in place of *operation*, which the feed would refuse for *reason*.

        It is an object with the key and the reason, or None if the row is skipped.

        Raises:
            WrongPipeline: the rule is `stop`, or the feed would refuse the report.
        """
        data, place = operation.get("data"), f"{self.name}, row {operation.get('id')}: {reason}"
        fields: Mapping[str, Any] = data if isinstance(data, dict) else {}
        if fields:
            largest = max(fields, key=lambda each: len(to_ascii_json(fields[each])))
            place += f"; the largest field is {largest}"
        if self._too_large == SKIP:
            _log.warning("%s; it was skipped", place)
            return None
        key = {name: fields[name] for name in self.keys if name in fields}
        report = {**operation, "data": {**key, REASON: reason}}
        if self._too_large == STOP or refusal_of(report, to_ascii_json(report).encode()):
            give = f"leave out columns, or give too_large={SKIP!r} or {REPORT!r}"
            raise WrongPipeline(f"{place}; {give}")
        _log.warning("%s; a report replaces it", place)
        return report

    def judge_large(self, ids: Sequence[str]) -> list[str]:
        """Return the problem of the rows *ids*, or warn if they are skipped or reported."""
        if not ids:
            return []
        least = "at least " if len(ids) == LARGE_ROWS else ""
        count = f"rows that are too large for the feed: {least}{len(ids):,}, the first is {ids[0]}"
        if self._too_large == STOP:
            give = f"leave out columns, or give too_large={SKIP!r} or {REPORT!r}"
            return [f"{count} (more than {OPERATION_BYTES_MAX:,} bytes); {give}"]
        _log.warning("%s: %s; too_large is %s", self.name, count, self._too_large)
        return []


def refusal_of(operation: Mapping[str, Any], line: bytes) -> str:
    """Return the reason why a feed would refuse *operation* for its size, nesting or id, or "".

    *line* is the operation as JSON.
    """
    brackets, id = line.count(b"[") + line.count(b"{"), str(operation.get("id"))
    is_id = 0 < len(id) <= _SURE_CHARS and "\0" not in id
    if is_id and len(line) <= _SURE_BYTES and brackets <= JSON_DEPTH_MAX:
        return ""  # nearly every operation returns here, without being parsed
    try:
        lines_from(line, NDJSON_TYPE, now_ms=0)
    except Rejected as error:
        field = error.field.removeprefix("line 1").lstrip(": ")
        return f"{field}: {error.rule}" if field else error.rule
    return ""


class RowRules(SizeRule):
    """The rules for the rows of *name*.

    Only *columns* and the key are published; if *columns* is empty, all columns except *exclude*. A
    column that is named like a secret (`is_secret`) must be named: a new reader refuses the table
    otherwise.

    Raises:
        WrongPipeline: both *columns* and *exclude* are given, or *too_large* is unknown.
    """

    def __init__(
        self,
        name: str,
        keys: Sequence[str],
        columns: tuple[str, ...],
        exclude: tuple[str, ...],
        too_large: str,
    ) -> None:
        super().__init__(name, keys, too_large)
        self.columns, self.exclude = columns, exclude
        if self.columns and self.exclude:
            raise WrongPipeline(f"{name}: give columns= or exclude=, not both")
        self.fields: list[str] = []  # the columns to read
        self.selected: tuple[str, ...] = ()  # the same, but empty if these are all columns
        self._withheld, self._warned = set[str](), set[str]()

    def choose(self, names: Sequence[str], published: Collection[str] | None) -> list[str]:
        """Choose the columns to read among *names*, and return the reasons why this is impossible.

        *published* are the columns that the reader has published before, or None if it is new.
        """
        given = (*self.columns, *self.exclude)
        problems = [
            f"it has no column {each!r}; the columns are {', '.join(names)}"
            for each in given
            if each not in names
        ]
        kept = self._kept(names)
        problems += [
            f"its key column {each} cannot be excluded"
            for each in self.keys
            if each in self.exclude
        ]
        problems += self._judge(kept, published)
        self.fields = [each for each in kept if each not in self._withheld]
        self.selected = () if len(self.fields) == len(names) else tuple(self.fields)
        return problems

    def select(self, document: dict[str, Any], published: Collection[str] | None) -> dict[str, Any]:
        """Return the chosen fields of *document*.

        Raises:
            WrongPipeline: a field is named like a secret, and the reader is new.
        """
        kept = self._kept(document)
        if problems := self._judge(kept, published):
            raise WrongPipeline(f"{self.name}: {problems[0]}")
        return {each: document[each] for each in kept if each not in self._withheld}

    def _kept(self, names: Iterable[str]) -> list[str]:
        if self.columns:
            return [each for each in names if each in self.columns or each in self.keys]
        return [each for each in names if each not in self.exclude]

    def _judge(self, names: Iterable[str], published: Collection[str] | None) -> list[str]:
        """Return the problem of columns that are named like secrets and were not named by the user.

        A reader that has published before warns instead, and withholds new columns.
        """
        secrets = {each for each in names if is_secret(each)}.difference(self.columns)
        if not secrets:
            return []
        if published is None:
            rule = "named like secrets: list the columns to publish in columns=, or give exclude="
            return [f"its columns {', '.join(sorted(secrets))} are {rule}"]
        self._withheld |= secrets.difference(published, self.keys)
        for each in sorted(secrets - self._warned):
            is_published = "withheld" if each in self._withheld else "published"
            rule = "is named like a secret; give columns= or exclude="
            _log.warning("%s: the column %s is %s, but %s", self.name, each, is_published, rule)
        self._warned |= secrets
        return []
