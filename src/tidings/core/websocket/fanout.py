"""
Assign operations to subscriptions, and build the messages.

The subscriptions for an operation are looked up by the keys of the operation (its parents, its
type, and the key for everything), and by the parents that it removed. The cost therefore depends on
the matches, not on the number of connections. If few subscriptions exist, all of them are read at
once. If a batch of pages needs very many keys, all subscriptions are also read at once, which
limits the time for the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.catchup.matching import with_ref
from tidings.core.model.events import (
    leave_of,
    of_line,
    pack,
    redacted_leave_of,
    to_json,
    with_trace,
)
from tidings.core.model.filters import keys_of, parent_key
from tidings.core.triton.items import item_of, with_sub_resources
from tidings.core.websocket.connections import Subscription

if TYPE_CHECKING:
    from tidings.core.model.events import Event
    from tidings.core.model.operations import Operation
    from tidings.core.model.pages import Page
    from tidings.core.settings.values import Resource
    from tidings.core.state.removed_parents import Left

Find = Callable[[str], Sequence[Subscription]]
Resources = Mapping[str, "Resource"]  # the resources that the feed declares, by name
Lefts = Mapping[int, "Left"]  # removed parents by page, without pages for which they are unknown
_NONE: Resources = {}


@dataclass(slots=True)
class Plan:
    """
    The messages to send for *pages* pages.

    *events* are the operations that match any subscription, in log order, as JSON. *items* are the
    indexes of the events for listeners (clients of Triton's protocol, PROTOCOL 13); each of these
    events is sent as a separate message. For each connection, *wanted* has the ascending indexes of
    the events to send. *cursor* is the event id at the end of the pages. *deliveries* is the number
    of pairs of an event and a subscription. *traces* has the traces of events, by index.
    """

    cursor: str = ""
    pages: int = 0
    deliveries: int = 0
    events: list[str] = field(default_factory=list)
    items: set[int] = field(default_factory=set)
    wanted: dict[str, list[int]] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    traces: dict[int, str] = field(default_factory=dict)

    def add(self, event: Event, template: str) -> None:
        """Append *event*, with the link to its object that *template* gives, to `events`."""
        if event.trace:
            self.traces[len(self.events)] = event.trace
        self.events.append(to_json(with_ref(event, template)))

    def messages(self) -> Iterable[tuple[list[str], list[str]]]:
        """
        Yield each group of connections that get the same messages, with these messages.
        """
        alike: dict[tuple[str, bool, tuple[int, ...]], list[str]] = {}
        for connection_id, indexes in self.wanted.items():
            subscription = self.subscriptions[connection_id]
            form = subscription.encoding, subscription.traced and self.traces != {}
            alike.setdefault((*form, tuple(indexes)), []).append(connection_id)
        for (encoding, traced, chosen), connection_ids in alike.items():
            yield connection_ids, self._messages(chosen, encoding, traced=traced)

    def _messages(self, chosen: Sequence[int], encoding: str, *, traced: bool) -> list[str]:
        """Return the messages for the indexes *chosen*, of which either all or none are items."""
        if traced:
            texts = [with_trace(self.events[at], self.traces.get(at, "")) for at in chosen]
        else:
            texts = [self.events[at] for at in chosen]
        return texts if chosen[0] in self.items else list(pack(texts, self.cursor, encoding))


@dataclass(frozen=True, slots=True)
class Index:
    """
    The subscriptions of a feed. Each key is looked up at most once.

    *empty* is True if the feed has no subscriptions.
    """

    find: Find
    everybody: Callable[[], Sequence[Subscription]]
    empty: bool = False

    @staticmethod
    def of(find: Find, everybody: Callable[[], Sequence[Subscription]]) -> Index:
        everybody = cache(everybody)
        return Index(_Finding(find, everybody).find, everybody)

    @staticmethod
    def of_few(subscriptions: Sequence[Subscription]) -> Index:
        """Return an index of a feed that has only these subscriptions."""
        filed = _group_by_key(subscriptions)
        return Index(lambda key: filed.get(key, ()), lambda: subscriptions, empty=not subscriptions)

    def matching(self, operation: Operation) -> list[Subscription]:
        subscriptions = []
        for key in keys_of(operation):
            for subscription in self.find(key):
                if subscription.filter.matches(operation):
                    subscriptions.append(subscription)  # faster than a comprehension
        return subscriptions

    def left(self, operation: Operation, left: Sequence[str] | None) -> list[Subscription]:
        """
        Return the subscriptions that get a `leave` for *operation*.

        *left* are the parents that the operation removed. If *left* is None, they are unknown, and
        all subscriptions are checked.
        """
        places = map(self.find, map(parent_key, left)) if left is not None else (self.everybody(),)
        return [
            subscription
            for subscriptions in places
            for subscription in subscriptions
            if subscription.filter.left_by(operation, left)
            and not subscription.filter.matches(operation)
        ]


@dataclass(slots=True)
class _Finding:
    """
    A cache of the subscriptions by key.

    Each key is looked up once. After `limits.LOOK_UPS_MAX` keys, all subscriptions are read.
    """

    ask: Find
    everybody: Callable[[], Sequence[Subscription]]
    known: dict[str, Sequence[Subscription]] = field(default_factory=dict)
    filed: dict[str, list[Subscription]] | None = None

    def find(self, key: str) -> Sequence[Subscription]:
        if key not in self.known:
            self.known[key] = self._look_up(key)
        return self.known[key]

    def _look_up(self, key: str) -> Sequence[Subscription]:
        if len(self.known) < limits.LOOK_UPS_MAX:
            return self.ask(key)
        if self.filed is None:
            self.filed = _group_by_key(self.everybody())
        return self.filed.get(key, ())


def _group_by_key(subscriptions: Iterable[Subscription]) -> dict[str, list[Subscription]]:
    """Return the subscriptions by key, under the keys that the store uses."""
    filed: dict[str, list[Subscription]] = {}
    for subscription in subscriptions:
        for key in subscription.filter.keys():  # noqa: SIM118 a filter is not a dictionary
            filed.setdefault(key, []).append(subscription)
    return filed


def plan(
    pages: Sequence[Page],
    index: Index,
    lefts: Lefts | None = None,
    template: str = "",
    resources: Resources = _NONE,
) -> Plan:
    """
    Return the plan for the first of *pages*, until it has `limits.DELIVERIES_MAX` deliveries.

    The plan has at least one page. If *lefts* is None, no `leave` is planned. *template* is the
    feed's template for the links `ref` to objects (see `catchup.matching`). *resources* are the
    resources that the feed declares for listeners.
    """
    planned = Plan()
    for page in pages:
        if planned.deliveries >= limits.DELIVERIES_MAX:
            break
        planned.pages, planned.cursor = planned.pages + 1, page.end.encode()
        if not index.empty:  # without subscriptions, no operation has to be parsed
            left = lefts.get(page.number) if lefts is not None else {}
            _plan_page(planned, page, index, left, template, resources)
    return planned


def _plan_page(
    planned: Plan, page: Page, index: Index, left: Left | None, template: str, resources: Resources
) -> None:
    for slot, line in page.entries():
        operation = with_sub_resources(line, resources)
        matching = index.matching(operation)
        if operation.changed:
            matching = _without_listeners(planned, page, line, operation, matching)
        if matching and _want(planned, page, matching):
            planned.add(of_line(page.id_prefix, slot, line, page.trace), template)
        if left == {}:
            continue
        leaving = index.left(operation, left.get(slot, ()) if left is not None else None)
        if leaving:
            event = of_line(page.id_prefix, slot, line, page.trace)
            _send_leave(planned, page, event, leaving, template)


def _send_leave(
    planned: Plan, page: Page, event: Event, leaving: Sequence[Subscription], template: str
) -> None:
    for subscriptions, leave in _by_redaction(leaving):
        if _want(planned, page, subscriptions):
            planned.add(leave(event), template)


def _by_redaction(
    leaving: Sequence[Subscription],
) -> Iterator[tuple[list[Subscription], Callable[[Event], Event]]]:
    """
    Yield the subscriptions with a complete `leave`, then those with a redacted `leave`.

    A complete `leave` has all fields of the operation, and a redacted one has only type and id. For
    each group, also yield the function that builds its `leave`.
    """
    for redacted, leave in ((False, leave_of), (True, redacted_leave_of)):
        subscriptions = [
            subscription for subscription in leaving if subscription.filter.redacted == redacted
        ]
        if subscriptions:
            yield subscriptions, leave


def _without_listeners(
    planned: Plan, page: Page, line: str, operation: Operation, matching: Sequence[Subscription]
) -> list[Subscription]:
    """Plan the item for listeners in *matching*; return the subscriptions of other clients."""
    if _want(
        planned, page, (subscription for subscription in matching if subscription.filter.listens)
    ):
        planned.items.add(len(planned.events))
        planned.events.append(item_of(line, operation, page.at_ms))
    return [subscription for subscription in matching if not subscription.filter.listens]


def _want(planned: Plan, page: Page, subscriptions: Iterable[Subscription]) -> bool:
    """
    Assign the next event of the plan to *subscriptions*; return True if any of them gets the event.

    A subscription that begins after *page* or a later page does not get the event.
    """
    index = len(planned.events)
    wanted = False
    for subscription in subscriptions:
        if subscription.since >= page.number:
            continue
        wanted = True
        indexes = planned.wanted.setdefault(subscription.connection_id, [])
        if not indexes or indexes[-1] != index:  # a subscription may be found under several keys
            indexes.append(index)
            planned.deliveries += 1
            planned.subscriptions[subscription.connection_id] = subscription
    return wanted
