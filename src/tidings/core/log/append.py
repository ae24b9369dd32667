"""
Append pages: take a number, write the page with that number, and only then acknowledge.

A store with transactions does both in one transaction (`LogStore.together`). In any other store a
writer may crash between the two; readers close the hole with a filler (`reader`). A writer that
finds a filler at its number takes a new number. Nothing depends on time: the conditional write
decides which process is first. A claim records the page of a request with an Idempotency-Key, and
a precondition must hold when the page is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.core import limits
from tidings.core.errors import KeyReused, TidingsError, Unavailable
from tidings.core.model.pages import Page, encode, filler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidings.core.effects import Clock, NewId
    from tidings.core.log.stores import LogStore
    from tidings.core.model.pages import Page


class ClaimStore(Protocol):
    """What became of a request that carried an Idempotency-Key."""

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        """The live claim on *key*."""

    def claim(self, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        """Write *claim* unless a live one exists; the claim that stands afterwards."""

    def move(self, feed: str, claim: Claim, page: int) -> Claim:
        """Point *claim* to *page* if it still points where it did; the claim that stands."""


@dataclass(frozen=True, slots=True)
class Claim:
    """
    *key* belongs to the request with *fingerprint*, appended under *append_id* at *page*.

    The page is named before it is written, so that the request and its retry, even at the
    same time, aim at one page and only one of them can win it.
    """

    key: str
    fingerprint: str
    append_id: str
    page: int
    expires_ms: int


class Precondition(Protocol):
    """What has to hold where a page is appended."""

    def check(self) -> None:
        """
        As far as the log can be read now.

        Raises:
            Rejected: it does not hold.
        """

    def check_before(self, number: int) -> None:
        """
        At page *number*, which is the caller's, as far as all that comes before it.

        Raises:
            Rejected: it does not hold.
            Unavailable: a writer in flight before it takes too long.
        """


def every_feed(feed: str) -> None:
    """Where no feed is a copy: producers may post to each."""


@dataclass(frozen=True, slots=True)
class Appender:
    """
    *page_ms* is how long DynamoDB keeps a page; *check_writable* raises for feeds that are copies.
    """

    log: LogStore
    claims: ClaimStore
    clock: Clock
    new_id: NewId
    page_ms: int
    check_writable: Callable[[str], None] = every_feed

    def append(
        self,
        feed: str,
        lines: Sequence[str],
        required: Precondition | None = None,
        trace: str = "",
    ) -> Page:
        """
        Append *lines* as one page; when it returns, they are in the log for good.

        *trace* is kept with it (`Page.trace`).

        Raises:
            Rejected: what is *required* does not hold, and nothing was written.
            Chained: *feed* is a copy.
            TooLarge: they do not fit into a page.
            Unavailable: overtaken again and again.
        """
        self.check_writable(feed)
        body, append_id = encode(lines), self.new_id()
        if required:
            required.check()
        for attempt in range(limits.APPEND_ATTEMPTS_MAX):
            with self.log.together():
                number = self.log.take(feed, 0 if attempt else len(lines))  # counted once
                self._check_before(feed, number, required)
                page = self._page(number, body, append_id, trace)
                if self.log.put(feed, page) == append_id:
                    return page
        raise Unavailable(f"{feed}: overtaken {limits.APPEND_ATTEMPTS_MAX} times in a row")

    def append_once(
        self,
        feed: str,
        lines: Sequence[str],
        key: str,
        fingerprint: str,
        required: Precondition | None = None,
        trace: str = "",
    ) -> Page:
        """
        Append *lines* unless a request with this *key* has; the page either way.

        Its *trace* is that of the request that wrote it.

        Raises:
            KeyReused: the key belongs to a request with another fingerprint.
            Rejected, Chained, TooLarge, Unavailable: as `append`.
        """
        self.check_writable(feed)
        body = encode(lines)
        claim = self.claims.find(feed, key, now_ms=self.clock())
        if claim is None and required:
            required.check()
        with self.log.together():
            if claim is None:
                claim = self._claim(feed, key, fingerprint, len(lines))
            elif self._is_skipped(feed, claim.page):
                claim = self._moved(feed, claim)
            if claim.fingerprint != fingerprint:
                shown = key.rpartition("\t")[2]  # without whose it is, see `Allowed.own`
                raise KeyReused("belongs to another request", field="Idempotency-Key", value=shown)
            return self._aim(feed, body, claim, required, trace)

    def _claim(self, feed: str, key: str, fingerprint: str, operations: int) -> Claim:
        now, number = self.clock(), self.log.take(feed, operations)
        ours = Claim(key, fingerprint, self.new_id(), number, now + limits.CLAIM_MS)
        standing = self.claims.claim(feed, ours, now_ms=now)
        self._give_back(feed, ours.page, standing)
        return standing

    def _aim(
        self,
        feed: str,
        body: str | bytes,
        claim: Claim,
        required: Precondition | None = None,
        trace: str = "",
    ) -> Page:
        """Write to the page the claim names; overtaken, let the claim name another."""
        for _ in range(limits.APPEND_ATTEMPTS_MAX):
            if required and not self._is_there(feed, claim.page):
                self._check_before(feed, claim.page, required)
            page = self._page(claim.page, body, claim.append_id, trace)
            if self.log.put(feed, page) == claim.append_id:
                return self.log.read(feed, claim.page - 1, 1)[0]  # a retry's clock differs
            claim = self._moved(feed, claim)
        raise Unavailable(f"{feed}: overtaken {limits.APPEND_ATTEMPTS_MAX} times in a row")

    def _moved(self, feed: str, claim: Claim) -> Claim:
        """Let *claim* name a new page; the claim that is stored then."""
        number = self.log.take(feed)
        claim = self.claims.move(feed, claim, number)
        self._give_back(feed, number, claim)
        return claim

    def _is_skipped(self, feed: str, number: int) -> bool:
        """Return True if a restored log jumped over *number*: readers never look there again."""
        pages = self.log.read(feed, number - 1, 1)
        return bool(pages) and pages[0].first <= number < pages[0].number

    def _is_there(self, feed: str, number: int) -> bool:
        """Then the page is ours, and what is required has held; or a filler, and nothing is put."""
        pages = self.log.read(feed, number - 1, 1)
        return bool(pages) and pages[0].number == number

    def _check_before(self, feed: str, number: int, required: Precondition | None) -> None:
        """Where it does not hold, our number is given back."""
        if required is None:
            return
        try:
            required.check_before(number)
        except TidingsError:
            self._close(feed, number)
            raise

    def _give_back(self, feed: str, number: int, claim: Claim) -> None:
        """Close the hole we made where another request with the same key was faster."""
        if claim.page != number:
            self._close(feed, number)

    def _close(self, feed: str, number: int) -> None:
        now = self.clock()
        self.log.put(feed, filler(number, at_ms=now, expires_ms=now + self.page_ms))

    def _page(self, number: int, body: str | bytes, append_id: str, trace: str = "") -> Page:
        now = self.clock()
        return Page(number, body, append_id, now, now + self.page_ms, trace=trace)
