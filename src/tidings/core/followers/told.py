"""What a follower says of the pages that it has handled: those that are traced, and late ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.tracing import Passage, trace_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.effects import Clock
    from tidings.core.followers.follower import Handler
    from tidings.core.followers.leases import Lease
    from tidings.core.model.pages import Page
    from tidings.core.tracing import Tell


@dataclass(frozen=True, slots=True)
class Told:
    """
    Implements `Handler`: as *handler*, and *tell* is told of each traced page once it is handled.

    Of a turn whose oldest page was committed more than *late_ms* ago that page is told, traced or
    not: whoever looks for a late operation seldom knew beforehand which. 0: of none.
    """

    handler: Handler
    clock: Clock
    tell: Tell
    late_ms: int = 0

    @property
    def name(self) -> str:
        return self.handler.name

    def begin(self, lease: Lease) -> int:
        return self.handler.begin(lease)

    def note(self, feed: str) -> bytes:
        return self.handler.note(feed)

    def prepare(self, feed: str, checkpoint: int) -> bool:
        return self.handler.prepare(feed, checkpoint)

    def handle(self, feed: str, pages: Sequence[Page]) -> int:
        count = self.handler.handle(feed, pages)
        self.say(feed, pages[:count])
        return count

    def say(self, feed: str, handled: Sequence[Page]) -> None:
        """What there is to tell of the pages *handled* by a turn; mostly nothing."""
        traced = [page for page in handled if page.trace]
        if not handled or not (traced or self.late_ms):
            return
        now_ms, oldest = self.clock(), handled[0]
        for page in traced:
            passed_ms = max(0, now_ms - page.at_ms)
            self.tell(Passage(self.name, feed, page.number, passed_ms, trace_id(page.trace)))
        if self.late_ms and now_ms - oldest.at_ms > self.late_ms:
            late_ms = now_ms - oldest.at_ms
            self.tell(Passage(self.name, feed, oldest.number, late_ms, pages=len(handled)))

    def moved(self, feed: str) -> None:
        self.handler.moved(feed)

    def lost(self, feed: str) -> bool:
        return self.handler.lost(feed)
