"""Named consumers with one rule taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.simulation.parts import instead
from tidings.core.consumers import consumer as consumers
from tidings.core.consumers.consumer import Change, Consumer
from tidings.core.consumers.log_view import LogView
from tidings.core.consumers.service import Consumers, Session
from tidings.core.maintenance.retention import Look, RetentionService, Trimmed
from tidings.core.model.cursors import Place


def _by_the_highest(consumer: Consumer, entries: Sequence[Place]) -> Consumer:
    """Move the position to the highest acknowledged entry, regardless of gaps below it."""
    return consumers.ack_through(consumer, max(entries)) if entries else consumer


# An overtaken worker is not refused.
deaf_to_fences = instead(consumers, "check_fence", lambda consumer, fence: None)
# A batch that was begun and not finished is delivered again without a mark.
in_bulk_again = instead(consumers, "_mark_doubtful", lambda consumer: consumer)
by_the_highest = instead(consumers, "ack_entries", _by_the_highest)


class HastyRetention(RetentionService):
    """Retention waits for no consumer."""

    def run(self, feed: str, look: Look | None = None) -> Trimmed:
        return RetentionService.run(replace(self, holds=None), feed, look)


class ForgetfulView(LogView):
    """Removed pages are not noticed."""

    def check_within(self, consumer: Consumer) -> int:
        return self.reader.log.floor(consumer.feed)


class SilentRefilter(Consumers):
    """A filter is changed under the worker that reads with the old one."""

    def register(
        self, feed: str, name: str, wanted: Consumer, start: str | None, *, only_new: bool = False
    ) -> tuple[Consumer, bool]:
        if self.store.consumer(feed, name) is None:
            return super().register(feed, name, wanted, start, only_new=only_new)

        def refilter(found: Consumer) -> Change:
            return Change(replace(found, filter=wanted.filter))

        return self.repository.change(feed, name, refilter), False


class Drops(Consumers):
    """A parked message that failed again is forgotten."""

    def fail(self, feed: str, name: str, fence: int, entry: str, error: str) -> Session:
        def take(standing: Consumer) -> Change:
            consumers.check_fence(standing, fence)
            if entry in standing.retries:
                left = tuple(each for each in standing.retries if each != entry)
                less = replace(standing, retries=left, parked=standing.parked - 1)
                return Change(less, drop=(entry,))
            return Change(consumers.fail(standing, entry, error, self.clock()))

        return self._session(self.repository.change(feed, name, take))
