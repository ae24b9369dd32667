"""Accept a posted change: check it, send it to the webhooks of the feed, and append it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.auth.guard import INGEST
from tidings.core.changeagent import config, webhooks
from tidings.core.changeagent.changes import change_from, line_of, number_of
from tidings.core.changeagent.documents import CONFIGURATION
from tidings.core.errors import InvalidChange, Rejected, TooLarge, Unavailable, WrongContentType
from tidings.core.ingest.ingest import append_lines, check_key, check_within
from tidings.core.tracing import Tracer

if TYPE_CHECKING:
    from tidings.core.changeagent.documents import OperatorDocuments
    from tidings.core.changeagent.users import UserAuthenticator
    from tidings.core.changeagent.webhooks import WebhookVeto
    from tidings.core.counters import Counters
    from tidings.core.ingest.ingest import PostRequest
    from tidings.core.log.append import Appender

_JSON = re.compile(r"application/json(;.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposer:
    """The service that accepts changes.

    *operator_documents* must not be cached, so that a new webhook gets the next change, and a
    removed webhook does not.
    """

    appender: Appender
    gate: UserAuthenticator
    operator_documents: OperatorDocuments
    ask: WebhookVeto
    counters: Counters
    tracer: Tracer

    def accept(self, request: PostRequest) -> int:
        """Append the change of *request*; return its id.

        Raises:
            Rejected: nothing was written; the subclass and the message say why.
            Unavailable: it is unknown whether the change was written.
        """
        try:
            return self._accept(request)
        except Rejected as error:
            self.tracer.runtime.count("RequestsRejected", 1)
            if isinstance(error, InvalidChange | TooLarge):
                with suppress(Unavailable):  # a failure to count must not hide the error
                    key = self.gate.guard.feed_names.find(request.feed)
                    if key is not None:
                        self.counters.refuse(key)
            raise

    def _accept(self, request: PostRequest) -> int:
        feed = self.gate.guard.feed_names.key(request.feed)
        if feed != request.feed:
            request = request._replace(feed=feed)
        allowed = self.gate.check(feed, INGEST, request.credential)
        self.appender.check_writable(feed)  # reject a chained feed before any webhook is called
        if not _JSON.fullmatch(request.content_type):
            raise WrongContentType("Unsupported content type", value=request.content_type)
        key = None if request.key is None else check_key(request.key)
        body = request.content()
        change = change_from(body)
        line = line_of(
            change, name=self.appender.runtime.new_id(), now_ms=self.appender.runtime.clock()
        )
        check_within(allowed, [line])
        hooks = config.decode_configuration(
            self.operator_documents.operator_document(feed, CONFIGURATION).text
        ).hooks
        if hooks:
            webhooks.check(self.ask(hooks, change.data))
        own = key and allowed.namespaced_key(key)
        page = append_lines(self.appender, self.tracer, request, body, [line], own)
        self.tracer.runtime.count("OperationsIngested", 1)
        return number_of(page.number, 0)
