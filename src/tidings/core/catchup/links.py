"""
Refs: the address of an event's object, from the template of its feed.

Made when an event is sent, not when it is stored, so that a changed template holds for every
operation there ever was. A feed without a template pays nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tidings.core.catchup.batches import Lasting
from tidings.core.model.events import to_sse
from tidings.core.model.operations import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidings.core.catchup.batches import Part
    from tidings.core.model.events import Event

_PLACEHOLDER = re.compile(r"\{\{(type|id)\}\}")
_LASTING_MAX = 8  # pages that many streams are sent at a time; more would only hold memory


def with_ref(event: Event, template: str) -> Event:
    """*event* with `ref` as the last key of its data; `reset` and `live` stay without data."""
    if not template or not event.data:
        return event
    data = json.loads(event.data)
    # One pass: a placeholder in a name is text. Nothing is escaped: a name may be a path.
    ref = _PLACEHOLDER.sub(lambda place: str(data[place[1]]), template)
    return event._replace(data=f'{event.data[:-1]},"ref":{encoded(ref)}}}')


def with_refs(parts: Sequence[Part], template: str) -> Sequence[Part]:
    """*parts* whose events have a `ref` where there is a *template*."""
    return [Linked(part, template) for part in parts] if template else parts


@dataclass(frozen=True, slots=True)
class Linked:
    """Implements `Part`: the events of *part*, each with its `ref`."""

    part: Part
    template: str

    def events(self) -> Iterable[Event]:
        return (with_ref(event, self.template) for event in self.part.events())

    def sse(self) -> str:
        if isinstance(self.part, Lasting):
            return _lasting_text(self.part, self.template)
        return _text(self.part, self.template)


def _text(part: Part, template: str) -> str:
    return "".join(to_sse(with_ref(event, template)) for event in part.events())


@lru_cache(maxsize=_LASTING_MAX)
def _lasting_text(part: Lasting, template: str) -> str:
    """Made once for all streams that wait at the end of a feed."""
    return _text(part, template)
