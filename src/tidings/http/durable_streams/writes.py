"""Serve `PUT`, `POST` and `DELETE` of a stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidings.core import tracing
from tidings.core.auth.guard import INGEST
from tidings.core.errors import TidingsError
from tidings.http import links
from tidings.http.durable_streams.headers import (
    ALWAYS,
    ANY_TYPE,
    CONTENT_TYPE,
    admitted,
    appending_of,
    refused,
    standing,
)
from tidings.http.request import Answer

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.durable_streams.service import StreamWriter
    from tidings.core.durable_streams.stream import Appending, Stream
    from tidings.http.durable_streams.headers import Visit
    from tidings.http.request import Request


@dataclass(frozen=True, slots=True)
class StreamWrites:
    """
    The endpoint for writes to streams; *prefix* is the path below which the deployment is served.
    """

    writer: StreamWriter
    guard: Guard
    feeds: frozenset[str]
    prefix: str = ""

    def __call__(self, request: Request) -> Answer:
        """
        Return the response to *request*.

        Raises:
            TidingsError: an internal error.
        """
        try:
            status, headers = self._done(request)
        except TidingsError as error:
            return refused(error)
        return Answer(status, {**ALWAYS, **headers})

    def _done(self, request: Request) -> tuple[int, dict[str, str]]:
        visit = admitted(request, INGEST, self.guard, self.feeds)
        trace = tracing.asked(request.headers)
        if request.method == "DELETE":
            self.writer.remove(visit.feed, visit.name, trace)
            return 204, {}
        asked = appending_of(request, visit.allowed)
        if request.method == "PUT":
            return self._created(request, visit, asked, trace)
        stream, is_new = self.writer.append(visit.feed, visit.name, asked, trace)
        # With a producer, 200 means appended now; 204 means a duplicate, or a request without a
        # message.
        status = 200 if is_new and asked.producer and asked.body else 204
        return status, {**standing(stream), **_producer(stream, asked)}

    def _created(
        self, request: Request, visit: Visit, asked: Appending, trace: str | None
    ) -> tuple[int, dict[str, str]]:
        asked = replace(asked, content_type=asked.content_type or ANY_TYPE)
        stream, is_new = self.writer.create(visit.feed, visit.name, asked, trace)
        headers = {CONTENT_TYPE: stream.content_type, **standing(stream)}
        if not is_new:
            return 200, headers
        url = links.base_url(request.headers, self.prefix) + request.path
        return 201, {**headers, "location": url}


def _producer(stream: Stream, asked: Appending) -> dict[str, str]:
    """Return the last accepted request of the producer, so that it knows its position."""
    producer = asked.producer and stream.producer(asked.producer.id)
    if not producer:
        return {}
    return {"producer-epoch": str(producer.epoch), "producer-seq": str(producer.seq)}
