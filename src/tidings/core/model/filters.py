"""
Filters: OR inside `types` and inside `parents`, AND between them. Exact, case-sensitive.

A filter is filed under the keys a push looks for: each parent if it has any, else each type,
else everything.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidFilter, Rejected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tidings.core.model.operations import Operation

ALL_KEY = "*"
ANY = "*"  # at the end of an id: whatever follows
FIELDS = ("types", "parents", "ids")  # of a request, each a list of values
_SIEVE_VALUES_MAX = 8  # looking for more in a line takes longer than parsing it
_SIEVES_MAX = 4096  # filters in use at a time that are remembered; another costs 2 us
_PLAIN = re.compile(r"[ !#-\[\]-~]*")  # ASCII without quote and backslash
_ARRAY = '["'  # what a list as text begins with if it is JSON
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Filter:
    """
    None: not filtered. An empty set matches nothing (`types=,`).

    One of *ids* that ends with `*` stands for all ids that begin with what is before it.
    *leave*: an operation that takes one of *parents* away is told too. Made by `wanting`.
    *kinds*, of a listener, stands alone: pairs of a type and what must be among `changed`.
    *veiled*: of what left it is told which object it was and nothing else, and only where that is
    known; made by `within`, for who may not see what is outside.
    """

    types: frozenset[str] | None = None
    parents: frozenset[str] | None = None
    leave: bool = False
    kinds: frozenset[tuple[str, str]] | None = None
    veiled: bool = False
    ids: frozenset[str] | None = None

    def matches(self, operation: Operation) -> bool:
        if self.kinds is not None:
            return any((operation.type, sub) in self.kinds for sub in operation.changed)
        if not self._concerns(operation):
            return False
        return self.parents is None or not self.parents.isdisjoint(operation.parents)

    def _concerns(self, operation: Operation) -> bool:
        """Whether *operation* is of an object whose type and id, which never change, match."""
        if self.types is not None and operation.type not in self.types:
            return False
        return self.ids is None or _begins(operation.id, self.ids)

    def left_by(self, operation: Operation, left: Iterable[str] | None) -> bool:
        """
        Whether *operation*, which does not match, is to be told as a leave.

        *left* are the parents it took away; None: unknown, so that it may be any.
        """
        if not self.leave or not self._concerns(operation):
            return False
        if left is None:
            return not self.veiled
        return self.parents is not None and not self.parents.isdisjoint(left)

    def may_match(self, text: str) -> bool:
        """
        False only where no operation in *text*, lines of the log, matches.

        What is not in the text is in no operation; what is there may be something else, and
        has to be parsed. That spares most of the parsing of a filtered stream.
        """
        return all(_occurs(values, text) for values in (self.types, self.parents, self.ids))

    @property
    def is_everything(self) -> bool:
        return self.values() == {} and self.kinds is None

    def values(self) -> dict[str, list[str]]:
        """What each field of a request names, sorted, without those that are not filtered."""
        fields = {name: getattr(self, name) for name in FIELDS}
        return {name: sorted(values) for name, values in fields.items() if values is not None}

    @property
    def listens(self) -> bool:
        """Whether it is a listener's, who is told items instead of events."""
        return self.kinds is not None

    def keys(self) -> list[str]:
        """What this filter is filed under, sorted."""
        if self == LEAVERS:
            return [ALL_KEY]
        if self.kinds is not None:
            return sorted(kind_key(name, sub) for name, sub in self.kinds)
        if self.parents is not None:
            return sorted(parent_key(parent) for parent in self.parents)
        if self.types is not None:
            return sorted(type_key(name) for name in self.types)
        return [ALL_KEY]


EVERYTHING = Filter()
LEAVERS = Filter(types=frozenset(), leave=True)  # matches nothing, see `Pusher`


def wanting(
    types: frozenset[str] | None,
    parents: frozenset[str] | None,
    ids: frozenset[str] | None = None,
    *,
    leave: bool,
) -> Filter:
    """A type and an id are never left, they name the object; *leave* counts beside *parents*."""
    return Filter(types, parents, leave and bool(parents), ids=ids)


def within(wanted: Filter, bound: Filter, *, leave: bool = False) -> Filter:
    """
    What of *wanted* lies within *bound*: of types and of parents, those that both name.

    A bound names no ids.

    *leave*: leaves were asked for, also where *wanted* itself names no parents.
    """
    parents = _common(wanted.parents, bound.parents)
    types = _common(wanted.types, bound.types)
    narrowed = wanting(types, parents, wanted.ids, leave=wanted.leave or leave)
    return replace(narrowed, veiled=narrowed.leave and bound.parents is not None)


def _common(wanted: frozenset[str] | None, bound: frozenset[str] | None) -> frozenset[str] | None:
    if wanted is None or bound is None:
        return bound if wanted is None else wanted
    return wanted & bound


def _occurs(values: frozenset[str] | None, text: str) -> bool:
    if values is None:
        return True
    encoded = _encoded(values)
    return encoded is None or any(each in text for each in encoded)


@lru_cache(maxsize=_SIEVES_MAX)
def _encoded(values: frozenset[str]) -> tuple[str, ...] | None:
    """*values* as every JSON has them; None where they are many, or one might be escaped."""
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
    """Every key under which a filter that matches *operation* may be filed."""
    yield ALL_KEY
    yield type_key(operation.type)
    for parent in operation.parents:
        yield parent_key(parent)
    for sub in operation.changed:
        yield kind_key(operation.type, sub)


def _begins(id: str, wanted: frozenset[str]) -> bool:
    if id in wanted:
        return True
    return any(id.startswith(each[:-1]) for each in wanted if each.endswith(ANY))


def from_query(query: Mapping[str, str | None]) -> Filter:
    """
    A filter from lists as text (`listed`), `FIELDS`, and the switch `leave`; empty is as absent.

    Raises:
        InvalidFilter: too many values, a value too long, one that cannot be stored, a list that is
            not valid, or a switch that is neither `true` nor `false`.
    """
    values = {name: listed(text, name) for name in FIELDS if (text := query.get(name))}
    return from_lists(values, leave=switch(query.get("leave"), "leave"))


def listed(text: str, field: str) -> list[str]:
    """
    Return the values of the list *text*: comma-separated, or a JSON array of strings.

    It is an array if it begins with `["`: the only way to write a value that contains a comma.

    Raises:
        InvalidFilter: it begins like an array and is not valid.
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
    """Return *values* as `listed` reads them; no values match nothing."""
    kept = [value for value in values if value]
    text = ",".join(kept) or ","
    plain = len(kept) == text.count(",") + 1 and not text.startswith(_ARRAY)
    return text if plain or not kept else json.dumps(kept, ensure_ascii=False)


def from_lists(
    values: Mapping[str, object], wrong: type[Rejected] = InvalidFilter, *, leave: bool = False
) -> Filter:
    """
    A filter from lists of texts, `FIELDS`; what else *values* has is none of its.

    Raises:
        InvalidFilter: see `from_query`.
        *wrong*: one is no list of texts.
    """
    sets = {}
    for name in FIELDS:
        given = values.get(name)
        texts = isinstance(given, list) and all(isinstance(each, str) for each in given)
        if given is not None and not texts:
            raise wrong("must be an array of strings", field=name, value=given)
        sets[name] = checked(given, name) if isinstance(given, list) else None
    return wanting(**sets, leave=leave)


def of(values: Mapping[str, Iterable[str] | None]) -> Filter:
    """The filter that `Filter.values` tells."""
    given = {name: values.get(name) for name in FIELDS}
    sets = {name: None if each is None else frozenset(each) for name, each in given.items()}
    return wanting(**sets, leave=False)


def parse(types: str | None, parents: str | None, leave: str | None = None) -> Filter:
    """As `from_query`."""
    return from_query({"types": types, "parents": parents, "leave": leave})


def switch(text: str | None, field: str) -> bool:
    """
    Whether the parameter *field* is on; not where it is empty or absent.

    Raises:
        InvalidFilter: it is neither `true` nor `false`.
    """
    if text not in (None, "", "true", "false"):
        raise InvalidFilter("must be true or false", field=field, value=text)
    return text == "true"


def checked(values: list[str], field: str) -> frozenset[str]:
    """
    *values* as a set without empty ones.

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
                "without U+0000 and lone surrogates"
            )
            raise InvalidFilter(rule, field=field, value=value)
    return kept
