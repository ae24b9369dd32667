"""
Fan-out: which subscription gets which operations, and in which messages.

The plan looks subscriptions up by what an operation is (its parents, its type, everything),
so it costs what matches, not what is connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .connections import Watch
from .filters import keys_of
from .frames import of_line, pack, to_json
from .operations import parse_line

if TYPE_CHECKING:
    from .pages import Page

Find = Callable[[str], Sequence[Watch]]


@dataclass(slots=True)
class Plan:
    """
    *events* are the operations somebody wants, in log order, as JSON; *wanted* names for each
    subscription the indexes of its events, ascending. *cursor* is the place behind all pages.
    """

    cursor: str
    events: list[str] = field(default_factory=list)
    wanted: dict[str, list[int]] = field(default_factory=dict)
    watches: dict[str, Watch] = field(default_factory=dict)

    def messages(self) -> Iterable[tuple[list[str], list[str]]]:
        """Connections that get the same events, and their messages, built once."""
        alike: dict[tuple[int, ...], list[str]] = {}
        for connection_id, indexes in self.wanted.items():
            alike.setdefault(tuple(indexes), []).append(connection_id)
        for chosen, connection_ids in alike.items():
            yield connection_ids, list(pack((self.events[at] for at in chosen), self.cursor))


def plan(pages: Sequence[Page], find: Find) -> Plan:
    """What to send for *pages*; *find* is asked once for each key."""
    known: dict[str, Sequence[Watch]] = {}
    found = Plan(cursor=pages[-1].end.encode())
    for page in pages:
        for slot, line in enumerate(page.lines):
            _plan_line(found, page, slot, line, known, find)
    return found


def _plan_line(
    found: Plan, page: Page, slot: int, line: str, known: dict[str, Sequence[Watch]], find: Find
) -> None:
    operation = parse_line(line)
    wanted = False
    for key in keys_of(operation):
        if key not in known:
            known[key] = find(key)
        for watch in known[key]:
            if watch.since < page.number and watch.filter.matches(operation):
                _want(found, watch)
                wanted = True
    if wanted:
        found.events.append(to_json(of_line(page.id_prefix, slot, line)))


def _want(found: Plan, watch: Watch) -> None:
    """Give *watch* the event that is about to be added."""
    index = len(found.events)
    indexes = found.wanted.setdefault(watch.connection_id, [])
    if not indexes or indexes[-1] != index:  # filed under several keys of this operation
        indexes.append(index)
        found.watches[watch.connection_id] = watch
