"""Assign operations to subscriptions, and build the messages.

The subscriptions for an operation are looked up by the keys of the operation (its parents, its
type, and the key for everything), and by the parents that it removed. The cost therefore depends on
the matches, not on the number of connections. If few subscriptions exist, all of them are read at
once. If a batch of pages needs very many keys, all subscriptions are also read at once, which
limits the time for the batch.

Subscriptions that get the same messages form an audience. An operation is matched once per
audience, and a message is built once per audience.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from tidings.core import limits
from tidings.core.catchup.matching import with_ref
from tidings.core.model.events import (
    NO_OPTIONS,
    Event,
    EventOptions,
    leave_of,
    of_line,
    pack,
    redacted_leave_of,
    to_json,
    to_traced_json,
)
from tidings.core.model.filters import keys_of, parent_key
from tidings.core.model.operations import is_erasure
from tidings.core.triton.items import item_of, with_sub_resources
from tidings.core.websocket.connections import Subscription

if TYPE_CHECKING:
    from tidings.core.model.filters import Filter
    from tidings.core.model.operations import Operation
    from tidings.core.model.pages import Page
    from tidings.core.settings.values import Admission, Resource
    from tidings.core.state.removed_parents import RemovedBySlot

Find = Callable[[str], Sequence[Subscription]]
Resources = Mapping[str, "Resource"]  # the resources that the feed declares, by name
# Removed parents by page, without pages for which they are unknown.
RemovedByPage = Mapping[int, "RemovedBySlot"]
_NONE: Resources = {}
Filtered = TypeVar("Filtered", Subscription, "Audience")


@dataclass(eq=False, slots=True)
class Audience:
    """The subscriptions *members* by connection, which share the other fields of this class.

    The first page for them is the page after *since*.
    """

    filter: Filter
    since: int
    admission: Admission
    encoding: str
    options: EventOptions
    members: dict[str, Subscription] = field(default_factory=dict)


@dataclass(slots=True)
class _Audiences:
    """The audiences of a feed, for pages after page *after*.

    A connection has one subscription, so it is in one audience. Up to *after*, it is not relevant
    when a subscription began.
    """

    after: int
    _known: dict[tuple[object, ...], Audience] = field(default_factory=dict)

    def of(self, subscriptions: Iterable[Subscription]) -> list[Audience]:
        found: dict[Audience, None] = {}
        for each in subscriptions:
            since = max(each.since, self.after)
            form = each.filter, since, each.admission, each.encoding, each.options
            audience = self._known.get(form)
            if audience is None:
                audience = self._known[form] = Audience(*form)
            audience.members[each.connection_id] = each
            found[audience] = None
        return list(found)


@dataclass(slots=True)
class Plan:
    """The messages to send for *pages* pages.

    *events* are the operations that match any subscription, in log order, as JSON. *items* are the
    indexes of the events for listeners (clients of Triton's protocol, PROTOCOL 13); each of these
    events is sent as a separate message. For each audience, *wanted* has the ascending indexes of
    the events to send. *cursor* is the event id at the end of the pages. *deliveries* is the number
    of pairs of an event and a subscription. *sources* has the events that are not items, by index.
    """

    cursor: str = ""
    pages: int = 0
    deliveries: int = 0
    events: list[str] = field(default_factory=list)
    items: set[int] = field(default_factory=set)
    wanted: dict[Audience, list[int]] = field(default_factory=dict)
    sources: dict[int, Event] = field(default_factory=dict)

    def add(self, event: Event, template: str) -> None:
        """Append *event*, with the link to its object that *template* gives, to `events`."""
        linked = self.sources[len(self.events)] = with_ref(event, template)
        self.events.append(to_json(linked))

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """Return the subscriptions that get any event, by connection."""
        return dict(chain.from_iterable(each.members.items() for each in self.wanted))

    def messages(self) -> Iterable[tuple[list[str], list[str]]]:
        """Yield each group of connections that get the same messages, with these messages."""
        options = {audience.options for audience in self.wanted}
        forms = {each: self._form(each) for each in options}
        alike: dict[tuple[str, EventOptions, tuple[int, ...]], list[str]] = {}
        for audience, indexes in self.wanted.items():
            form = audience.options if forms[audience.options] is not self.events else NO_OPTIONS
            key = audience.encoding, form, tuple(indexes)
            alike.setdefault(key, []).extend(audience.members)
        for (encoding, form, chosen), connection_ids in alike.items():
            texts = [forms.get(form, self.events)[at] for at in chosen]
            is_items = chosen[0] in self.items  # either all or none are items
            yield connection_ids, texts if is_items else list(pack(texts, self.cursor, encoding))

    def _form(self, options: EventOptions) -> list[str]:
        """Return the events for clients with *options*: `events` itself if they are the same."""
        if options == NO_OPTIONS:
            return self.events
        changed = {at: to_traced_json(options.apply(each)) for at, each in self.sources.items()}
        texts = [changed.get(at, text) for at, text in enumerate(self.events)]
        return self.events if texts == self.events else texts


@dataclass(frozen=True, slots=True)
class Index:
    """The audiences of a feed by key. Each key is looked up at most once.

    *audiences* returns all audiences, and *subscriptions* returns all subscriptions. *empty* is
    True if the feed has no subscriptions.
    """

    find: Callable[[str], Sequence[Audience]]
    audiences: Callable[[], Sequence[Audience]]
    subscriptions: Callable[[], Sequence[Subscription]]
    empty: bool = False

    @staticmethod
    def of(
        find: Find, subscriptions: Callable[[], Sequence[Subscription]], after: int = 0
    ) -> Index:
        """Return an index for pages after page *after*."""
        subscriptions, known = cache(subscriptions), _Audiences(after)
        finding = _Finding(find, subscriptions)
        return Index(
            cache(lambda key: known.of(finding.find(key))),
            cache(lambda: known.of(subscriptions())),
            subscriptions,
        )

    @staticmethod
    def of_few(subscriptions: Sequence[Subscription], after: int = 0) -> Index:
        """Return an index of a feed that has only these subscriptions."""
        audiences = _Audiences(after).of(subscriptions)
        filed = _group_by_key(audiences)
        return Index(
            lambda key: filed.get(key, ()),
            lambda: audiences,
            lambda: subscriptions,
            empty=not subscriptions,
        )

    def matching(self, operation: Operation) -> list[Audience]:
        return [
            audience
            for key in keys_of(operation)
            for audience in self.find(key)
            if audience.filter.matches(operation)
        ]

    def leaving(self, operation: Operation, removed: Sequence[str] | None) -> list[Audience]:
        """Return the audiences that get a `leave` for *operation*.

        *removed* are the parents that the operation removed. If *removed* is None, they are
        unknown, and all audiences are checked.
        """
        found = [self.audiences()] if removed is None else map(self.find, map(parent_key, removed))
        return [
            audience
            for audiences in found
            for audience in audiences
            if audience.filter.left_by(operation, removed)
            and not audience.filter.matches(operation)
        ]


@dataclass(slots=True)
class _Finding:
    """The subscriptions by key. After `limits.LOOK_UPS_MAX` keys, all subscriptions are read."""

    ask: Find
    subscriptions: Callable[[], Sequence[Subscription]]
    asked: int = 0
    filed: dict[str, list[Subscription]] | None = None

    def find(self, key: str) -> Sequence[Subscription]:
        if self.asked < limits.LOOK_UPS_MAX:
            self.asked += 1
            return self.ask(key)
        if self.filed is None:
            self.filed = _group_by_key(self.subscriptions())
        return self.filed.get(key, ())


def _group_by_key(several: Iterable[Filtered]) -> dict[str, list[Filtered]]:
    """Return the subscriptions or audiences by key, under the keys that the store uses."""
    filed: dict[str, list[Filtered]] = {}
    for each in several:
        for key in each.filter.keys():  # noqa: SIM118 a filter is not a dictionary
            filed.setdefault(key, []).append(each)
    return filed


def plan(
    pages: Sequence[Page],
    index: Index,
    removed_at: RemovedByPage | None = None,
    template: str = "",
    resources: Resources = _NONE,
) -> Plan:
    """Return the plan for the first of *pages*, until it has `limits.DELIVERIES_MAX` deliveries.

    The plan has at least one page. If *removed_at* is None, no `leave` is planned. *template*
    is the feed's template for the links `ref` to objects (see `catchup.matching`). *resources* are
    the resources that the feed declares for listeners.
    """
    planned = Plan()
    for page in pages:
        if planned.deliveries >= limits.DELIVERIES_MAX:
            break
        planned.pages, planned.cursor = planned.pages + 1, page.end.encode()
        if not index.empty:  # without subscriptions, no operation has to be parsed
            removed = removed_at.get(page.number) if removed_at is not None else {}
            _plan_page(planned, page, index, removed, template, resources)
    return planned


def _plan_page(
    planned: Plan,
    page: Page,
    index: Index,
    removed: RemovedBySlot | None,
    template: str,
    resources: Resources,
) -> None:
    for slot, line in page.entries():
        operation = with_sub_resources(line, resources)
        matching = index.matching(operation)
        if operation.changed:
            if _want(planned, page, (each for each in matching if each.filter.listens)):
                planned.items.add(len(planned.events))
                planned.events.append(item_of(line, operation, page.at_ms))
            matching = [each for each in matching if not each.filter.listens]
        for erasures, audiences in _by_erasures(line, matching):
            if _want(planned, page, audiences):
                event = of_line(page.id_prefix, slot, line, page.trace, erasures=erasures)
                planned.add(event, template)
        if removed == {}:
            continue
        leaving = index.leaving(operation, removed.get(slot, ()) if removed is not None else None)
        if leaving:
            event = of_line(page.id_prefix, slot, line, page.trace)
            for audiences, leave in _by_redaction(leaving):
                if _want(planned, page, audiences):
                    planned.add(leave(event), template)


def _by_erasures(
    line: str, matching: Sequence[Audience]
) -> Iterable[tuple[bool, Sequence[Audience]]]:
    """Yield the audiences that get *line* as the same event, each with its filter's `erasures`.

    Only an erasure has two events: one for clients that requested erasures, and one for others.
    """
    if not is_erasure(line):
        return ((False, matching),)
    return (
        (erasures, [each for each in matching if each.filter.erasures == erasures])
        for erasures in (False, True)
    )


def _by_redaction(
    leaving: Sequence[Audience],
) -> Iterator[tuple[list[Audience], Callable[[Event], Event]]]:
    """Yield the audiences with a complete `leave`, then those with a redacted `leave`.

    A complete `leave` has all fields of the operation, and a redacted one has only type and id. For
    each group, also yield the function that builds its `leave`.
    """
    for redacted, leave in ((False, leave_of), (True, redacted_leave_of)):
        audiences = [each for each in leaving if each.filter.redacted == redacted]
        if audiences:
            yield audiences, leave


def _want(planned: Plan, page: Page, audiences: Iterable[Audience]) -> bool:
    """Assign the next event of the plan to *audiences*; return True if any of them gets the event.

    An audience that begins after *page* or a later page does not get the event.
    """
    index = len(planned.events)
    wanted = False
    for audience in audiences:
        if audience.since >= page.number:
            continue
        wanted = True
        indexes = planned.wanted.setdefault(audience, [])
        if not indexes or indexes[-1] != index:  # an audience may be found under several keys
            indexes.append(index)
            planned.deliveries += len(audience.members)
    return wanted
