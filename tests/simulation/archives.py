"""An archive of the feed that `copies` uses: pages leave the log, and consumers continue from it.

At the end it must contain every page of the log, and consumers that read below the floor must have
received every operation: `consumer.Session` checks that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fakes import MemoryArchive
from tests.simulation.functions import FEED
from tests.simulation.model import Broken
from tests.simulation.process import Process
from tests.simulation.world import World
from tidings.core import limits
from tidings.core.archive.reader import covered_page
from tidings.core.archive.segments import decode
from tidings.core.followers.follower import ARCHIVE

if TYPE_CHECKING:
    from tidings.core.archive.segments import Span

LEADS_TO: Final = ("archive was read", "part was written again")
_EVERY_MS = 5_000  # a minute of a real feed


class CountingArchive(MemoryArchive):
    """An archive that counts the pages read and the pages written again."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._saw = world.faults.saw

    def put(self, feed: str, span: Span, body: bytes) -> None:
        spans = self.list(feed, 0, limits.ARCHIVE_LISTED)
        self._saw("part was written again", any(each.holds(span.first) for each in spans))
        super().put(feed, span, body)

    def get(self, feed: str, span: Span) -> bytes | None:
        self._saw("archive was read")
        return super().get(feed, span)


def begin(world: World) -> None:
    """Archive from the first page on."""
    world.faults.add({}, LEADS_TO)
    world.functions.archive = CountingArchive(world)
    world.scheduler.spawn("archive", lambda: _run(world))


def _run(world: World) -> None:
    def body(process: Process) -> None:
        world.functions.follow(process, ARCHIVE)

    while True:
        world.scheduler.sleep(_EVERY_MS)
        world.sleep_through_lull()
        world.machine.start("follow-archive", limits.FOLLOW_TIMEOUT_S, body)


def check(world: World) -> None:
    """At rest, check that it has all of the log, and that its checkpoint says so."""
    archive, frontier = world.functions.archive, world.model.frontier
    if archive is None:
        return
    spans = archive.list(FEED, 0, 10**6)
    if covered_page(spans, 0) != frontier:
        raise Broken(
            f"the archive holds up to {covered_page(spans, 0)}, the frontier is {frontier}"
        )
    for span in spans:
        for page in decode(archive.get(FEED, span) or b""):
            world.model.written(page.number, list(page.lines), page.at_ms)  # raises if it was not
            if world.model.seconds[page.number] != page.seconds:
                raise Broken(f"page {page.number} of the archive has another second")
