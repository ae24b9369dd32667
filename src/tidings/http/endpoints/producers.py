"""Endpoints that append operations, items of Triton, and changes of changeagent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import tracing
from tidings.core.errors import TidingsError
from tidings.core.ingest import ingest
from tidings.core.settings.profiles import is_oplog
from tidings.http import answers
from tidings.http.answers import changeagent_answer, changeagent_refusal
from tidings.http.request import base_url, root_links, wants_links
from tidings.http.router import PATHS, check_operations, feed_of, without_slash

if TYPE_CHECKING:
    from tidings.core.changeagent.submit import Proposer
    from tidings.http.request import Answer, Request


@dataclass(frozen=True, slots=True)
class Operations:
    """Serve `POST /`, `/ops` and `/feeds/{feed}/ops`, and requests that no other route matches."""

    ingester: ingest.Ingester
    prefix: str

    def __call__(self, request: Request) -> Answer:
        is_post = request.method == "POST" and PATHS.fullmatch(request.path)
        elsewhere = None if is_post else self._elsewhere(request)
        if elsewhere is not None:
            return elsewhere
        try:
            if not is_post:
                check_operations(request.method, request.path, "POST")
            return answers.accepted_answer(request, self.ingester.accept(to_core_request(request)))
        except TidingsError as error:
            guard = self.ingester.guard
            as_oplog = is_oplog(guard.profiles, guard.feed_names, feed_of(request.path))
            return answers.refusal(error, path=request.path, as_oplog=as_oplog)

    def _elsewhere(self, request: Request) -> Answer | None:
        """Return the links of `/` or a redirect; None if *request* is for neither of them."""
        if wants_links(request.method, request.path, request.headers):
            return answers.json_answer(200, root_links(base_url(request.headers, self.prefix)))
        return without_slash(request, self.prefix)


@dataclass(frozen=True, slots=True)
class Items:
    """Serve `POST /changefeeds`, which appends the items in a request as one page of the log."""

    ingester: ingest.Ingester

    def __call__(self, request: Request) -> Answer:
        return answers.accepted_answer(request, self.ingester.accept(to_core_request(request)))


def to_core_request(request: Request) -> ingest.PostRequest:
    """Return *request* as the core's request type."""
    return ingest.PostRequest(
        feed=request.feed,
        body=b"",
        late=request.content,
        ids=answers.wants_ids(request),
        content_type=request.headers.get("content-type", ""),
        key=request.headers.get("idempotency-key"),
        credential=request.credential,
        trace=tracing.parse_trace_headers(request.headers),
    )


@dataclass(frozen=True, slots=True)
class Changes:
    """Serve `POST /changes`, which appends a change. The response contains the change's number."""

    proposer: Proposer

    def __call__(self, request: Request) -> Answer:
        try:
            return changeagent_answer(200, {"_id": self.proposer.accept(to_core_request(request))})
        except TidingsError as error:
            return changeagent_refusal(error)
