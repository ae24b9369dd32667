"""Filters of operations.

The values of one field are alternatives, and all fields of a filter have to match. Values match
exactly, including their case.

The follower `push` finds filters by index keys. A filter with parents has a key for each parent. A
filter with types but no parents has a key for each type. Any other filter has the key `ALL_KEY`.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from tidings.core import limits
from tidings.core.errors import InvalidFilter, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tidings.core.model.operations import Operation

ALL_KEY = "*"
ANY = "*"  # at the end of an id in a filter, this matches any rest of an id
ERASURES = "erasures"  # the field of a request for events `erase`
FIELDS = ("types", "parents", "ids")  # the filtered fields in a request, each a list of values
_values = attrgetter(*FIELDS)
_SIEVE_VALUES_MAX = 8  # more substring searches in a line take longer than parsing the line
_SIEVES_MAX = 4096  # cached results of `_encode_values`, more than are in use; one takes 2 us
_PLAIN = re.compile(r"[ !#-\[\]-~]*")  # ASCII without quote and backslash
_ARRAY = '["'  # a list of values that begins with this is a JSON array
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class Names(NamedTuple):
    """The values of *operations* for each of `FIELDS`. The ids are sorted."""

    types: frozenset[str]
    parents: frozenset[str]
    ids: Sequence[str]
    operations: Sequence[Operation]

    @staticmethod
    def of(operations: Sequence[Operation]) -> Names:
        parents = frozenset(parent for each in operations for parent in each.parents)
        types = frozenset(each.type for each in operations)
        return Names(types, parents, sorted(each.id for each in operations), operations)


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on the type, the parents and the id of an operation.

    A field that is None is not filtered. An empty set matches nothing (`types=,`).

    An id in *ids* that ends with `*` matches all ids that begin with the text in front of the `*`.

    If *leave* is True, an operation that removes one of *parents* is sent as an event `leave`.

    If *erasures* is True, an erasure is sent as an event `erase`, otherwise as a `delete`.

    *kinds* is used instead of the other fields for listeners, which are clients of Triton's
    protocol. It contains pairs of a type and a value. An operation of the type matches if its
    `changed` contains the value.

    If *redacted* is True, a `leave` contains only the type and id of the object, and is sent only
    if the previous parents are known. `within` sets *redacted* for clients that may not see objects
    outside the bound of their key.
    """

    types: frozenset[str] | None = None
    parents: frozenset[str] | None = None
    leave: bool = False
    kinds: frozenset[tuple[str, str]] | None = None
    redacted: bool = False
    ids: frozenset[str] | None = None
    erasures: bool = False

    def matches(self, operation: Operation) -> bool:
        if self.kinds is not None:
            return any((operation.type, sub) in self.kinds for sub in operation.changed)
        if not self._concerns(operation):
            return False
        return self.parents is None or not self.parents.isdisjoint(operation.parents)

    def _concerns(self, operation: Operation) -> bool:
        """Return True if the type and the id of the object, which never change, match."""
        if self.types is not None and operation.type not in self.types:
            return False
        return self.ids is None or _begins(operation.id, self.ids)

    def left_by(self, operation: Operation, removed: Iterable[str] | None) -> bool:
        """Return True if *operation*, which must not match, is sent as a `leave`.

        *removed* are the parents that the operation removed, or None if the removed parents are
        unknown. The operation may then have removed any parent.
        """
        if not self.leave or not self._concerns(operation):
            return False
        if removed is None:
            return not self.redacted
        return self.parents is not None and not self.parents.isdisjoint(removed)

    def may_match(self, text: str) -> bool:
        """Return False only if no operation in *text*, which has lines of the log, can match.

        The text is not parsed: a value that does not occur in the text occurs in no operation. If a
        value occurs in the text, it may belong to another field. The caller must then parse the
        lines.
        """
        return all(_occurs(values, text) for values in _values(self))

    @property
    def is_long(self) -> bool:
        """Return True if `may_match` would have to search for too many values."""
        return any(len(values or ()) > _SIEVE_VALUES_MAX for values in _values(self))

    def may_match_any(self, names: Names) -> bool:
        """Return False only if no operation of *names* can match. No operation is looked at."""
        if self.types is not None and self.types.isdisjoint(names.types):
            return False
        if self.parents is not None and self.parents.isdisjoint(names.parents):
            return False
        return self.ids is None or any(_occurs_in(each, names.ids) for each in self.ids)

    def select(self, names: Names) -> Sequence[int]:
        """Return the indexes of the operations in *names* that match."""
        operations = names.operations
        found: Sequence[int] = range(len(operations))
        if self.kinds is not None:
            return [at for at in found if self.matches(operations[at])]
        if self.types is not None and not names.types <= self.types:
            found = [at for at in found if operations[at].type in self.types]
        if self.parents is not None:
            found = [at for at in found if not self.parents.isdisjoint(operations[at].parents)]
        if self.ids is not None:
            found = [at for at in found if _begins(operations[at].id, self.ids)]
        return found

    @property
    def is_everything(self) -> bool:
        return self is EVERYTHING or (self.values() == {} and self.kinds is None)

    def values(self) -> dict[str, list[str]]:
        """Return the sorted values of each filtered field of a request."""
        fields = zip(FIELDS, _values(self), strict=True)
        return {name: sorted(values) for name, values in fields if values is not None}

    @property
    def listens(self) -> bool:
        """Return True for the filter of a listener, which receives items instead of events."""
        return self.kinds is not None

    def keys(self) -> list[str]:
        """Return the sorted index keys of this filter."""
        if self == LEAVERS:
            return [ALL_KEY]
        if self.kinds is not None:
            return sorted(kind_key(name, sub) for name, sub in self.kinds)
        if self.parents is not None:
            return sorted(parent_key(parent) for parent in self.parents)
        if self.types is not None:
            return sorted(type_key(name) for name in self.types)
        return [ALL_KEY]


EVERYTHING, NOTHING = Filter(), Filter(types=frozenset())
LEAVERS = Filter(types=frozenset(), leave=True)  # this filter matches nothing, see `Pusher`


def to_text(filter_: Filter) -> str:
    """Return *filter_* as it is stored: JSON in ASCII, so that it can contain any string."""
    fields: dict[str, Any] = {**filter_.values()}
    if filter_.leave:
        fields["leave"] = True
    if filter_.erasures:
        fields["erasures"] = True
    if filter_.redacted:
        fields["veiled"] = True
    if filter_.kinds is not None:
        fields["kinds"] = sorted(filter_.kinds)
    return json.dumps(fields, separators=(",", ":"))


def from_text(text: str) -> Filter:
    """Return the filter that was passed to `to_text`."""
    fields = json.loads(text)
    leave, redacted = fields.pop("leave", False), fields.pop("veiled", False)
    erasures = fields.pop("erasures", False)
    if "kinds" in fields:
        fields["kinds"] = map(tuple, fields["kinds"])
    sets = {name: frozenset(values) for name, values in fields.items()}
    return Filter(**sets, leave=leave, redacted=redacted, erasures=erasures)


def wanting(
    types: frozenset[str] | None,
    parents: frozenset[str] | None,
    ids: frozenset[str] | None = None,
    *,
    leave: bool,
    erasures: bool = False,
) -> Filter:
    """Build a filter. Ignore *leave* if *parents* is None, because types and ids never change."""
    return Filter(types, parents, leave and bool(parents), ids=ids, erasures=erasures)


def within(wanted: Filter, bound: Filter, *, leave: bool = False) -> Filter:
    """Return a filter with the values that *wanted* and *bound* share, for each of `FIELDS`.

    A field that only one of the two filters has is taken from that filter. *bound* is the
    restriction of a key, without ids. *leave* is True if the client requested events `leave`; a
    filter without parents does not record this request, see `wanting`.
    """
    common = map(_common, _values(wanted), _values(bound))
    values = dict(zip(FIELDS, common, strict=True))
    narrowed = wanting(**values, leave=wanted.leave or leave, erasures=wanted.erasures)
    return replace(narrowed, redacted=narrowed.leave and bound.parents is not None)


def _common(wanted: frozenset[str] | None, bound: frozenset[str] | None) -> frozenset[str] | None:
    if wanted is None or bound is None:
        return bound if wanted is None else wanted
    return wanted & bound


def _occurs(values: frozenset[str] | None, text: str) -> bool:
    if values is None:
        return True
    encoded = _encode_values(values)
    return encoded is None or any(each in text for each in encoded)


@lru_cache(maxsize=_SIEVES_MAX)
def _encode_values(values: frozenset[str]) -> tuple[str, ...] | None:
    """Return *values* as they occur in JSON.

    Return None if there are too many values to search for, or if a value may be written with an
    escape.
    """
    if len(values) > _SIEVE_VALUES_MAX or not all(map(_PLAIN.fullmatch, values)):
        return None
    return tuple(f'"{value[:-1]}' if value.endswith(ANY) else f'"{value}"' for value in values)


def parent_key(parent: str) -> str:
    return f"p/{parent}"


def type_key(name: str) -> str:
    return f"t/{name}"


def kind_key(name: str, sub: str) -> str:
    return f"k/{name}/{sub}"


def keys_of(operation: Operation) -> Iterator[str]:
    """Yield the index keys of all filters that may match *operation*."""
    yield ALL_KEY
    yield type_key(operation.type)
    for parent in operation.parents:
        yield parent_key(parent)
    for sub in operation.changed:
        yield kind_key(operation.type, sub)


def _begins(id: str, wanted: frozenset[str]) -> bool:
    if id in wanted:
        return True
    # No prefix begins with another one, so only the last one up to *id* can match.
    prefixes = _prefixes(wanted)
    at = bisect_right(prefixes, id)
    return at > 0 and id.startswith(prefixes[at - 1])


@lru_cache(maxsize=_SIEVES_MAX)
def _prefixes(wanted: frozenset[str]) -> list[str]:
    """Return the sorted prefixes in *wanted* without `*`, except those that begin with another."""
    found: list[str] = []
    for each in sorted(value[:-1] for value in wanted if value.endswith(ANY)):
        if not found or not each.startswith(found[-1]):
            found.append(each)
    return found


def _occurs_in(value: str, ids: Sequence[str]) -> bool:
    """Return True if *value*, an id or a prefix with `*`, matches one of the sorted *ids*."""
    prefix = value.removesuffix(ANY)
    at = bisect_left(ids, prefix)
    return at < len(ids) and (
        ids[at].startswith(prefix) if value.endswith(ANY) else ids[at] == value
    )


def from_query(query: Mapping[str, str | None]) -> Filter:
    """Return the filter of a query.

    Each of `FIELDS` is a parameter with a list as text (see `parse_list`). `leave` and `erasures`
    are other parameters. An empty parameter counts as absent.

    Raises:
        InvalidFilter: a list is invalid or has too many values, a value is too long or cannot be
            stored, or `leave` or `erasures` is neither `true` nor `false`.
    """
    values = {name: parse_list(text, name) for name in FIELDS if (text := query.get(name))}
    leave, erasures = (switch(query.get(name), name) for name in ("leave", ERASURES))
    return from_lists(values, leave=leave, erasures=erasures)


def parse_list(text: str, field: str) -> list[str]:
    """Return the values of the list *text*, which is comma-separated or a JSON array of strings.

    A text that begins with `["` is an array. A value that contains a comma must be in an array.

    Raises:
        InvalidFilter: the text begins like an array and is not a valid one.
    """
    if not text.startswith(_ARRAY):
        return text.split(",")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise InvalidFilter(
            f"must be a JSON array of strings if it begins with {_ARRAY}", field=field
        )
    return values


def as_text(values: Iterable[str]) -> str:
    """Return *values* in the format that `parse_list` parses; `,` if there are no values."""
    kept = [value for value in values if value]
    text = ",".join(kept) or ","
    plain = len(kept) == text.count(",") + 1 and not text.startswith(_ARRAY)
    return text if plain or not kept else json.dumps(kept, ensure_ascii=False)


def from_lists(
    values: Mapping[str, object],
    wrong: type[Rejected] = InvalidFilter,
    *,
    leave: bool = False,
    erasures: bool = False,
) -> Filter:
    """Return the filter with the lists of strings in *values*; ignore keys other than `FIELDS`.

    Raises:
        InvalidFilter: see `from_query`.
        *wrong*: a field is not a list of strings.
    """
    sets = {}
    for name in FIELDS:
        given = values.get(name)
        texts = isinstance(given, list) and all(isinstance(each, str) for each in given)
        if given is not None and not texts:
            raise wrong("must be an array of strings", field=name, value=given)
        sets[name] = validate_values(given, name) if isinstance(given, list) else None
    return wanting(**sets, leave=leave, erasures=erasures)


def of(values: Mapping[str, Iterable[str] | None], *, erasures: bool = False) -> Filter:
    """Return the filter with the given *values*, the inverse of `Filter.values`."""
    given = {name: values.get(name) for name in FIELDS}
    sets = {name: None if each is None else frozenset(each) for name, each in given.items()}
    return wanting(**sets, leave=False, erasures=erasures)


def of_consumer(body: Mapping[str, object], wrong: type[Rejected]) -> Filter:
    """Return the filter of a named consumer, with the lists and the field `erasures` of *body*.

    Raises:
        *wrong*, InvalidFilter: a field is invalid, see `from_lists`.
    """
    erasures = body.get(ERASURES, False)
    if not isinstance(erasures, bool):
        raise wrong("must be true or false", field=ERASURES, value=erasures)
    return from_lists(body, wrong, erasures=erasures)


def parse(types: str | None, parents: str | None, leave: str | None = None) -> Filter:
    """Return the filter of a query with these parameters, see `from_query`."""
    return from_query({"types": types, "parents": parents, "leave": leave})


def switch(text: str | None, field: str) -> bool:
    """Return True if the parameter *field* is `true`, and False if it is `false`, empty or absent.

    Raises:
        InvalidFilter: *text* has another value.
    """
    if text not in (None, "", "true", "false"):
        raise InvalidFilter("must be true or false", field=field, value=text)
    return text == "true"


def validate_values(values: list[str], field: str) -> frozenset[str]:
    """Return *values* as a set, without empty strings.

    Raises:
        InvalidFilter: see `from_query`.
    """
    kept = frozenset(value for value in values if value)
    if len(kept) > limits.FILTER_VALUES_MAX:
        rule = f"holds at most {limits.FILTER_VALUES_MAX} values, got {len(kept)}"
        raise InvalidFilter(rule, field=field)
    for value in kept:
        if _UNSTORABLE.search(value) or len(value.encode()) > limits.PARENT_BYTES_MAX:
            rule = (
                f"must be at most {limits.PARENT_BYTES_MAX} bytes "
                "and must not contain U+0000 or a lone surrogate"
            )
            raise InvalidFilter(rule, field=field, value=value)
    return kept
