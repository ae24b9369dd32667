"""Append pages: take a number, write the page with that number, and only then acknowledge.

A store with transactions takes the number and writes the page in one transaction
(`LogStore.together`). With any other store a writer may crash between these two steps. Followers
then close the hole with a filler (`reader.Filler`), and a writer that finds a filler at its number
takes a new number. A conditional write, not a clock, decides whether the page or the filler is
stored. A claim records the page of a request with an Idempotency-Key. A precondition must hold when
the page is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.errors import KeyReused, TidingsError, Unavailable
from tidings.core.model.pages import Page, encode, filler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.effects import Runtime
    from tidings.core.log.stores import LogStore
    from tidings.core.model.pages import Page


class ClaimStore(Protocol):
    """The stored claims of requests with an Idempotency-Key."""

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        """Return the claim on *key* that has not expired, or None."""

    def claim(self, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        """Write *claim* unless its key has a claim that has not expired.

        Return the claim that is stored afterwards.
        """

    def move(self, feed: str, claim: Claim, page: int) -> Claim:
        """Move the stored claim to *page* if it still has the page of *claim*.

        Return the claim that is stored afterwards.
        """


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a request on its Idempotency-Key *key*.

    *fingerprint* identifies the content of the request. *page* is the number of its page, and
    *append_id* is stored with that page. The claim is written before the page. A request and a
    concurrent retry therefore write to the same page number, and only one of the two writes
    succeeds.
    """

    key: str
    fingerprint: str
    append_id: str
    page: int
    expires_ms: int


class Precondition(Protocol):
    """A condition that must hold when a page is appended."""

    def check(self) -> None:
        """Check the condition against the part of the log that can be read now.

        Raises:
            Rejected: the condition does not hold.
        """

    def check_before(self, number: int) -> None:
        """Check the condition against all pages below *number*, a number that the caller has taken.

        Raises:
            Rejected: the condition does not hold.
            Unavailable: a page below *number* is still in flight after the maximum wait.
        """


def every_feed(feed: str) -> None:
    """Accept every feed, as `check_writable` of a deployment that has no chained feeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appender:
    """The writer of pages to the logs of feeds.

    *check_writable* raises `Chained` for a chained feed.
    """

    log: LogStore
    claims: ClaimStore
    runtime: Runtime
    check_writable: Callable[[str], None] = every_feed

    def append(
        self, feed: str, lines: Sequence[str], required: Precondition | None = None, trace: str = ""
    ) -> Page:
        """Append *lines* as one page, which is durable when the call returns.

        *trace* is stored with the page (`Page.trace`).

        Raises:
            Rejected: *required* does not hold, and nothing was written.
            Chained: *feed* is a chained feed.
            TooLarge: the lines do not fit into a page.
            Unavailable: a filler was found at the number of each attempt.
        """
        self.check_writable(feed)
        body, append_id = encode(lines), self.runtime.new_id()
        if required:
            required.check()

        def write() -> Page:
            for attempt in range(limits.APPEND_ATTEMPTS_MAX):
                # The first attempt counts the operations.
                number = self.log.take(feed, 0 if attempt else len(lines))
                if required:
                    self._check_before(feed, number, required)
                page = self._page(number, body, append_id, trace).with_lines(lines)
                if self.log.put(feed, page) == append_id:
                    return page
            raise Unavailable(f"{feed}: found a filler {limits.APPEND_ATTEMPTS_MAX} times in a row")

        return self.log.together(write)

    def append_once(
        self,
        feed: str,
        lines: Sequence[str],
        key: str,
        fingerprint: str,
        required: Precondition | None = None,
        trace: str = "",
    ) -> Page:
        """Append *lines* unless an earlier request with this *key* has appended a page.

        Return the page that is in the log. *trace* is stored only if this call writes the page.

        Raises:
            KeyReused: the key belongs to a request with another fingerprint.
            Rejected, Chained, TooLarge, Unavailable: see `append`.
        """
        self.check_writable(feed)
        body = encode(lines)
        found = self.claims.find(feed, key, now_ms=self.runtime.clock())
        if found is None and required:
            required.check()

        def write() -> Page:
            claim = found or self._claim(feed, key, fingerprint, len(lines))
            if claim is found and self._is_skipped(feed, claim.page):
                claim = self._move(feed, claim)
            if claim.fingerprint != fingerprint:
                shown = key.rpartition("\t")[2]  # without the owner, see `Allowed.namespaced_key`
                raise KeyReused("belongs to another request", field="Idempotency-Key", value=shown)
            return self._aim(feed, body, claim, required, trace)

        return self.log.together(write)

    def _claim(self, feed: str, key: str, fingerprint: str, operations: int) -> Claim:
        now, number = self.runtime.clock(), self.log.take(feed, operations)
        ours = Claim(key, fingerprint, self.runtime.new_id(), number, now + limits.CLAIM_MS)
        current = self.claims.claim(feed, ours, now_ms=now)
        self._give_back(feed, ours.page, current)
        return current

    def _aim(
        self,
        feed: str,
        body: str | bytes,
        claim: Claim,
        required: Precondition | None = None,
        trace: str = "",
    ) -> Page:
        """Write the page of *claim*. If its number has a filler, retry with a new page."""
        for _ in range(limits.APPEND_ATTEMPTS_MAX):
            if required and not self._is_there(feed, claim.page):
                self._check_before(feed, claim.page, required)
            page = self._page(claim.page, body, claim.append_id, trace)
            if self.log.put(feed, page) == claim.append_id:
                # An earlier request may have written the page, with another time than *page* has.
                return self.log.read(feed, claim.page - 1, 1)[0]
            claim = self._move(feed, claim)
        raise Unavailable(f"{feed}: found a filler {limits.APPEND_ATTEMPTS_MAX} times in a row")

    def _move(self, feed: str, claim: Claim) -> Claim:
        """Point *claim* to a new page; return the claim that is stored afterwards."""
        number = self.log.take(feed)
        claim = self.claims.move(feed, claim, number)
        self._give_back(feed, number, claim)
        return claim

    def _is_skipped(self, feed: str, number: int) -> bool:
        """Return True if a restore of the log skipped *number*, so that no reader reads it."""
        pages = self.log.read(feed, number - 1, 1)
        return bool(pages) and pages[0].first <= number < pages[0].number

    def _is_there(self, feed: str, number: int) -> bool:
        """Return True if page *number* exists, so that the precondition need not be checked again.

        The page is either that of this request, for which the precondition held, or a filler.
        In the latter case the page of this request cannot be written at *number*.
        """
        pages = self.log.read(feed, number - 1, 1)
        return bool(pages) and pages[0].number == number

    def _check_before(self, feed: str, number: int, required: Precondition | None) -> None:
        """Check *required* against pages below *number*. If that fails, fill *number* and raise."""
        if required is None:
            return
        try:
            required.check_before(number)
        except TidingsError:
            self._close(feed, number)
            raise

    def _give_back(self, feed: str, number: int, claim: Claim) -> None:
        """Fill *number* if *claim* has another page, as another request with the key won."""
        if claim.page != number:
            self._close(feed, number)

    def _close(self, feed: str, number: int) -> None:
        now = self.runtime.clock()
        self.log.put(feed, filler(number, at_ms=now, expires_ms=now + self.runtime.page_ms))

    def _page(self, number: int, body: str | bytes, append_id: str, trace: str = "") -> Page:
        now = self.runtime.clock()
        return Page(number, body, append_id, now, now + self.runtime.page_ms, trace=trace)
