"""Stream an endless catch-up as text, either as blocks of SSE or as lines of NDJSON.

A stream is a state machine without a socket. `take` returns the next data from memory, and `next`
returns them from the stores. The host decides how long to wait if there is nothing to send.

The tail cache holds the last pages of a log in memory, read once for all waiting streams. The cache
has all pages from some page to `last`. A stream that needs only these pages gets them from memory;
a stream that needs an earlier page reads the log. Pages change only by an erasure: when the cache
gets the erasure entry, it drops all pages before it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.catchup import matching
from tidings.core.catchup.catchup import LIVE, Progress
from tidings.core.catchup.matching import Chosen, Written, page_part
from tidings.core.errors import Rejected
from tidings.core.model import cursors, envelopes, filters
from tidings.core.model.events import OPTIONS, Event, EventOptions
from tidings.core.model.feeds import public_name
from tidings.core.model.operations import begins_with_erasure

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from tidings.core.auth.access import ReaderAccess, ReaderGate
    from tidings.core.auth.guard import Credential
    from tidings.core.catchup.catchup import CatchUp
    from tidings.core.catchup.matching import Part
    from tidings.core.log.reader import Run
    from tidings.core.model.envelopes import Encode
    from tidings.core.model.filters import Filter
    from tidings.core.model.pages import Page
    from tidings.core.state.rows import StateStore


@dataclass(slots=True)
class Tail:
    """A cache of the last pages of a log. *last* is the last page that was added."""

    last: int = 0
    bytes_max: int = limits.TAIL_BYTES_MAX
    _pages: deque[Page] = field(default_factory=deque)
    _size: int = 0
    _before: int = 0  # the page before the first cached page

    def start(self, last: int) -> None:
        """Clear the cache, and continue after page *last*."""
        self.last, self._before, self._size = last, last, 0
        self._pages.clear()

    def extend(self, run: Run) -> bool:
        """Add the pages that were read after `last`; return True if there are new pages."""
        if run.trimmed:  # a stream below the floor continues with `Stream.next`
            self.start(run.floor - 1)
            return True
        for page in run.pages:
            assert page.first <= self.last + 1
            text = page.text
            if begins_with_erasure(text):
                self.start(page.first - 1)
            self._hold(replace(page, body=text))
        return bool(run.pages)

    def reaches(self, page: int) -> bool:
        """Return True if all pages after *page* up to `last` are cached."""
        return page >= self._before

    def after(self, page: int) -> list[Page]:
        """Return the cached pages after *page*, in order; [] if *page* is `last` or after it.

        The cache must reach *page*; see `reaches`.
        """
        assert self.reaches(page)
        return [*takewhile(lambda each: each.number > page, reversed(self._pages))][::-1]

    def _hold(self, page: Page) -> None:
        self._pages.append(page)
        self.last = page.number
        self._size += limits.TAIL_PAGE_BYTES + len(page.body)
        while self._size > self.bytes_max:
            page = self._pages.popleft()
            self._before = page.number
            self._size -= limits.TAIL_PAGE_BYTES + len(page.body)


_NO_FILTER: Mapping[str, str | None] = {}

HEARTBEAT = ":\n"
EMPTY_LINE = "\n"  # the heartbeat of an NDJSON stream; readers of NDJSON ignore empty lines
# The first block of a stream has this field if its host ends streams, if its client has no cursor,
# or if its client asked for cursors. A browser then resumes after this time, instead of after three
# to five seconds.
RESUME = f"retry: {limits.STREAM_RESUME_MS}\n"


@dataclass(frozen=True, slots=True)
class Chunk:
    """The data to send next.

    *at_frontier* is True if nothing more can be sent for now. The host must not read again before
    *wait_ms* have passed. *progress* is the position after *parts*.
    """

    parts: Sequence[Part]
    at_frontier: bool
    progress: Progress
    wait_ms: int = 0

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces of whole blocks; each piece is built when it is requested."""
        piece: list[str] = []
        size = 0
        for part in self.parts:
            text = part.sse()
            if text:
                piece.append(text)
                size += len(text)
            if size >= limits.PIECE_CHARS:
                yield "".join(piece)
                piece, size = [], 0
        if piece:
            yield "".join(piece)

    @property
    def text(self) -> str:
        return "".join(self.pieces())


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """The format of a stream. Streams with equal formats have the same text for the same events.

    *name* is one of `envelopes.FORMATS`. With *lines*, the stream is NDJSON. *cursors* is True if
    the client accepts blocks that have only an id.
    """

    name: str
    options: EventOptions
    lines: bool = False
    cursors: bool = field(default=False, compare=False)

    @staticmethod
    def parse(query: Mapping[str, str | None], *, lines: bool) -> StreamFormat:
        """Return the format that *query* requests.

        Raises:
            InvalidFilter: a parameter is invalid.
        """
        options = EventOptions(*(filters.switch(query.get(name), name) for name in OPTIONS))
        cursors_wanted = filters.switch(query.get("cursors"), "cursors")
        name = envelopes.check_format(query.get("format"))
        return StreamFormat(name, options, lines, cursors_wanted)


@dataclass(slots=True)
class Stream:
    """The stream of one consumer, after *progress*.

    `template` is the template of `ref` (`catchup.matching`). `write` formats events for clients
    that asked for traces, for another format or for lines; if it is None, the text of the parts is
    sent.
    """

    catch_up: CatchUp
    access: ReaderAccess
    filter: Filter
    progress: Progress
    format: StreamFormat
    template: str = field(init=False)
    write: Encode | None = field(init=False)
    _key: tuple[Hashable, ...] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        wanted, clock = self.format, self.catch_up.reader.clock
        name = public_name(self.feed)
        self.write = envelopes.writer(wanted.name, name, clock, wanted.options, lines=wanted.lines)
        self._read_template()

    @property
    def feed(self) -> str:
        return self.access.feed

    @property
    def lines(self) -> bool:
        return self.format.lines

    def _read_template(self) -> None:
        self.template = self.access.gate.guard.profiles.profile(self.feed).object_url

    @property
    def text_form(self) -> Hashable:
        """Return a value that is equal for streams with the same text for the same parts."""
        return self.template, self.format

    @property
    def text_key(self) -> Hashable:
        """Return a value that is equal for streams with the same text for the same pages.

        It is usually the same object.
        """
        if self._key is None or self._key[1] != self.template:
            self._key = _text_key(self.filter, self.template, self.format)
        return self._key

    def count(self, text: str) -> int:
        """Return the number of events in *text*.

        Count the characters with which each event ends or begins. Data is one line of JSON, so it
        cannot contain these characters.
        """
        return text.count("}\n" if self.lines else "\nevent: ")

    def has_ended(self) -> bool:
        """Return True if the feed was deleted, or the credential no longer opens it.

        Also apply other changes of the feed's profile to the stream.
        """
        try:
            self.access.check()
        except Rejected:
            return True
        self._read_template()
        return False

    def beginning(self, *, without_cursor: bool) -> str:
        """Return the text before the first event, which gives the client a cursor.

        Return an empty text if the client has a cursor and did not ask for blocks without events.

        A client without a cursor would miss the operations that are posted while it reconnects.
        oplog's clients and some EventSource libraries store a cursor only with an event. So the
        client gets a `live` event, which is true because the stream starts at the end of the log.
        """
        cursor, resume = self.progress.cursor, "" if self.lines else RESUME
        if without_cursor:
            live = Chosen([Event(cursor, LIVE, "")])
            return resume + "".join(part.sse() for part in self._linked_parts([live]))
        if self.lines or not (self.format.cursors and _is_cursor(self.progress)):
            return ""
        return f"{resume}id: {cursor}\n\n"

    def take(self, tail: Tail) -> Chunk | None:
        """Return the next events from memory only, or None if the stores must be read."""
        parts = self.select(tail)
        return None if parts is None else self.chunk(parts)

    def select(self, tail: Tail) -> Sequence[Part] | None:
        """Move to the end of *tail*; return the events on the way, or None as `take` does."""
        if self.filter.leave or not self.progress.in_step or not tail.reaches(self.progress.page):
            return None
        pages = tail.after(self.progress.page)
        parts = [page_part(page, self.filter) for page in pages]
        if pages:
            self.progress = Progress(pages[-1].number, seconds=pages[-1].seconds)
        return parts

    def chunk(self, parts: Sequence[Part]) -> Chunk:
        """Return *parts*, which `select` has returned, in the format of this stream."""
        return Chunk(self._linked_parts(parts), at_frontier=True, progress=self.progress)

    def next(self) -> Chunk:
        """Return the next events from the stores; no events while the key exceeds its rate."""
        wait_ms = self.access.charge.wait_ms()
        if wait_ms:
            return Chunk((), at_frontier=False, progress=self.progress, wait_ms=wait_ms)
        step = self.catch_up.step(self.feed, self.progress, self.filter)
        self.progress = step.progress
        self.access.charge.add(step.size)
        return Chunk(self._linked_parts(step.parts), step.at_frontier, step.progress)

    def silence(self, last_sent: Progress, now: Progress) -> str:
        """Return the text for a consumer that got no event since its last text.

        For a stream of lines, the text is an empty line. If the client asked for cursors and its
        cursor has moved, the text is a block with the cursor. Otherwise it is a comment, as in
        oplog.
        """
        if self.lines:
            return EMPTY_LINE
        moved = self.format.cursors and _is_cursor(now) and now.cursor != last_sent.cursor
        return f"id: {now.cursor}\n\n" if moved else HEARTBEAT

    def _linked_parts(self, parts: Sequence[Part]) -> Sequence[Part]:
        linked = matching.with_refs(parts, self.template)
        write = self.write
        return linked if write is None else [Written(part, write) for part in linked]


@lru_cache(maxsize=4096)  # more forms than streams have at a time; further ones are only slower
def _text_key(*form: Hashable) -> tuple[Hashable, ...]:
    return form


def _is_cursor(progress: Progress) -> bool:
    """Return True if a client may resume from *progress*.

    A client may resume if `reset` is not due and, unless a copy is in progress, `live` is not due.
    """
    return not progress.resets and (progress.copying or not progress.announces)


@dataclass(frozen=True, slots=True)
class Streamer:
    """A factory of streams.

    *for_copy* returns the store of the state to use for a stream that copies the state.
    """

    catch_up: CatchUp
    gate: ReaderGate
    for_copy: Callable[[StateStore], StateStore] = lambda states: states

    def open(
        self,
        feed: str,
        cursor: str,
        query: Mapping[str, str | None] = _NO_FILTER,
        given: Credential | None = None,
        *,
        lines: bool = False,
    ) -> Stream:
        """Open the stream of *feed* after *cursor*, filtered by *query* (`filters.from_query`).

        *query* also has the parameters of `StreamFormat.parse`.

        Raises:
            InvalidFeed, UnknownFeed, WrongPassword, NoPasswordSet, WrongKey, OutsideKey,
                TooManyRequests, InvalidCursor, InvalidFilter, LeaveNotKept: see the rule in the
                error.
        """
        guard = self.gate.guard
        key = guard.feed_names.key(feed)
        access = self.gate.admit(key, given)
        at, requested = cursors.parse(cursor), filters.from_query(query)
        form = StreamFormat.parse(query, lines=lines)
        wanted = access.allowed.narrow(requested, leave=query.get("leave") == "true")
        guard.check_leave(key, wanted)
        progress = self.catch_up.start(key, at)
        catch_up = self.catch_up
        if progress.copying:
            catch_up = replace(catch_up, states=self.for_copy(catch_up.states))
        access.take_slot()
        return Stream(catch_up, access, wanted, progress, form)
