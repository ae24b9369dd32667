"""
Lists of changes as an ASGI app: `GET /changes`, `/changes/{id}`, also below `/feeds/{feed}`.

A response without entries waits for news as long as the client requests. All waiting clients share
one reader of the log's end, as streams do. `caching` decides which responses a cache may share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.guard import READ, credential_from
from tidings.core.auth.quotas import free
from tidings.core.changeagent.changes import ID_MAX
from tidings.core.changeagent.list import Lister, Listing, Query, extended, parse
from tidings.core.changeagent.users import UserAuthenticator
from tidings.core.errors import InvalidChange, TidingsError, whole
from tidings.core.model.feeds import DEFAULT_FEED, check_known
from tidings.http import caching, links
from tidings.http.answers import JSON, changeagent_answer, changeagent_refusal
from tidings.http.asgi import (
    Message,
    Receive,
    Send,
    disconnected,
    headers_of,
    in_thread,
    preflight,
    query_of,
    send_answer,
)
from tidings.http.request import Answer
from tidings.http.streams.waiting import CHANGES

if TYPE_CHECKING:
    import re
    from asyncio import Future

    from tidings.core.auth.guard import Allowed
    from tidings.core.auth.quotas import Charges, ReadCharge
    from tidings.http.streams.tail_poller import Listen, TailPoller

Listed = Callable[[Query], Awaitable[Listing]]


class ChangeLists:
    """The app. *lister* and *gate* are built for the first request."""

    def __init__(
        self,
        lister: Callable[[], Lister],
        gate: Callable[[], UserAuthenticator],
        feeds: frozenset[str],
        origins: tuple[str, ...],
        prefix: str = "",
        charges: Charges = free,
        listen: Listen | None = None,
    ) -> None:
        self._listen = listen
        self._lister, self._gate = lister, gate
        self._feeds, self._origins, self._prefix = feeds, origins, prefix
        self._charges = charges
        self._pollers: dict[str, TailPoller] = {}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        await send_answer(send, await self._answer(scope, headers, receive), headers, self._origins)

    async def _answer(self, scope: Message, headers: dict[str, str], receive: Receive) -> Answer:
        match = CHANGES.fullmatch(scope["path"])
        if match is None:  # other paths are not routed here
            return changeagent_answer(200, links.root(links.base_url(headers, self._prefix)))
        if scope["method"] == "OPTIONS":
            return preflight(headers, self._origins, "GET", "POST")
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            return await self._found(scope, headers, match, gone)
        except TidingsError as error:
            return changeagent_refusal(error)
        finally:
            gone.cancel()

    async def _found(
        self, scope: Message, headers: dict[str, str], match: re.Match[str], gone: Future[None]
    ) -> Answer:
        came_s = asyncio.get_running_loop().time()
        feed, allowed = await in_thread(self._admit, match["feed"] or DEFAULT_FEED, headers)
        if match["id"] is not None:
            number = _number(match["id"])
            change = await in_thread(self._lister().one, feed, number, allowed.bound)
            return Answer(200, {"content-type": JSON}, change)
        query = replace(parse(query_of(scope)), bound=allowed.bound)
        listed = partial(in_thread, self._list, feed, self._charges(feed, allowed.admission))
        first = await listed(query)
        listing = await self._awaited(feed, query, first, listed, gone, came_s)
        shared = caching.sharing(allowed, waits=query.waits, full=listing.is_full)
        if listing is not first:
            if shared:  # clients with other credentials may receive it: check again
                await in_thread(self._admit, feed, headers)
            else:  # a key with a rate, whose request must count only once
                waited_s = asyncio.get_running_loop().time() - came_s
                await in_thread(self._check_held, feed, allowed, waited_s)
        return Answer(200, {"content-type": JSON, **shared}, listing.to_json())

    def _admit(self, name: str, headers: dict[str, str]) -> tuple[str, Allowed]:
        feed = check_known(name, self._feeds)
        given = credential_from(headers.get("authorization"))
        return feed, self._gate().check(feed, READ, given)

    def _check_held(self, feed: str, allowed: Allowed, waited_s: float) -> None:
        now_ms = self._lister().reader.clock()
        since_ms = now_ms - round(waited_s * 1000)
        self._gate().guard.check_held(feed, allowed.admission, since_ms, now_ms)

    def _list(self, feed: str, charge: ReadCharge, query: Query) -> Listing:
        """
        Return the listing and charge for it. It is returned in any case; excess counts as later
        requests.
        """
        listing = self._lister().list(feed, query)
        charge.add(listing.read)
        return listing

    async def _awaited(
        self,
        feed: str,
        query: Query,
        listing: Listing,
        listed: Listed,
        gone: Future[None],
        came_s: float,
    ) -> Listing:
        """
        Return *listing*, or later entries that arrive while the client waits; it arrived at
        *came_s*.
        """
        now_s = asyncio.get_running_loop().time
        until_s = came_s + min(query.block_s, limits.CHANGES_BLOCK_S_MAX)
        if listing.waiting:  # the client itself may have posted the entries after the hole
            until_s = max(until_s, now_s() + limits.CHANGES_HOLE_S)
        poller = self._poller(feed)
        while not listing.entries and query.limit and not gone.done() and now_s() < until_s:
            if listing.at_end or listing.waiting:
                await poller.wait(listing.page, gone, until_s - now_s())
            listing = await self._after(query, listed, listing, poller)
        return listing

    async def _after(
        self, query: Query, listed: Listed, listing: Listing, poller: TailPoller
    ) -> Listing:
        """
        Return the entries after *listing*, from memory if the poller's tail has them, else from the
        log.
        """
        tail = poller.tail if listing.at_end or listing.waiting else None
        if tail is not None and tail.reaches(listing.page):
            pages = [each.page for each in tail.behind(listing.page)]
            return extended(listing, query, pages) if pages else listing
        later = replace(query, since=listing.next, strict=False)
        following = await listed(later)
        return replace(following, at_start=listing.at_start)

    def _poller(self, feed: str) -> TailPoller:
        from tidings.http.streams.tail_poller import TailPoller, at_a_pace

        if feed not in self._pollers:
            read = partial(self._lister().reader.read, feed)
            self._pollers[feed] = TailPoller(read, (self._listen or at_a_pace)(feed))
        return self._pollers[feed]


def _number(text: str) -> int:
    try:
        return whole(text, 0, ID_MAX)
    except ValueError:
        raise InvalidChange("Invalid ID", value=text) from None
