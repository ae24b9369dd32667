"""The open event streams of a process. Ends streams with an expired credential, or all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.catchup.sse import Stream
from tidings.core.errors import TidingsError
from tidings.http.asgi import Receive, disconnected, in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)
CHECK_S = 0.5  # with the age of a profile, streams end within five seconds of their credential


@dataclass(eq=False, slots=True)
class OpenStream:
    """An event stream in progress. *over* is done when it has to end."""

    stream: Stream
    over: asyncio.Future[None]
    has_left: bool = False

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


class OpenStreams:
    """
    The open streams, which it ends for reasons other than their time limit.

    *lasting*: streams have no time limit. Passwords are then checked again when the profile of
    their feed changes, and the stream slots of keys are renewed.
    """

    def __init__(self, *, lasting: bool) -> None:
        self._lasting = lasting
        self._open: set[OpenStream] = set()
        self._checking: asyncio.Task[None] | None = None

    @contextmanager
    def serving(self, stream: Stream, receive: Receive) -> Iterator[OpenStream]:
        """Yield an open stream that ends when its client, read through *receive*, disconnects."""
        one = OpenStream(stream, asyncio.get_running_loop().create_future())
        leaving = asyncio.ensure_future(_note_leaving(one, receive))
        if self._lasting or stream.admission.may_end:
            self._open.add(one)
            if self._checking is None:
                self._checking = asyncio.ensure_future(self._check_often())
        try:
            yield one
        finally:
            leaving.cancel()
            self._open.discard(one)
            if not self._open and self._checking is not None:
                self._checking.cancel()
                self._checking = None

    def end_all(self) -> None:
        """
        End every stream between two blocks; its client resumes, possibly from another process.
        """
        for each in self._open:
            each.end()

    async def _check_often(self) -> None:
        """
        Check all streams periodically, together in one thread: the profile of a feed is read once.
        """
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                for each in await in_thread(self._ended, list(self._open)):
                    each.end()
            except TidingsError as error:
                log.warning("credentials of event streams could not be checked: %s", error)
            except Exception:
                log.exception("credentials of event streams could not be checked")

    def _ended(self, streams: Sequence[OpenStream]) -> list[OpenStream]:
        if self._lasting:
            for each in streams:
                each.stream.renew()
        return [each for each in streams if each.stream.has_ended()]


async def _note_leaving(one: OpenStream, receive: Receive) -> None:
    await disconnected(receive)
    one.has_left = True
    one.end()
