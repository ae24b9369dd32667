"""The routes of webhooks, for operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.consumers.service import reason_from
from tidings.core.errors import Rejected, UnknownConsumer
from tidings.core.hooks.webhook import InvalidWebhook, again_ms
from tidings.core.model import filters
from tidings.core.model.feeds import check_known
from tidings.http.answers import json_answer
from tidings.http.endpoints.consumer_documents import Document, consumer_document
from tidings.http.endpoints.consumers_request import Asked
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.consumers.service import Consumers
    from tidings.core.hooks.registry import WebhookAdmin
    from tidings.core.hooks.webhook import Webhook
    from tidings.http.request import Answer, Request

_FIELDS = ("url", "from", "format", "attempts", "secret")


class NoWebhooks(Rejected, code="no_webhooks", status=501):
    """This deployment calls no webhooks."""


@dataclass(frozen=True, slots=True)
class WebhookRouter:
    """The endpoint of the routes of webhooks. Without *admin*, the deployment calls no webhooks."""

    consumers: Consumers
    guard: Guard
    feeds: frozenset[str]
    admin: WebhookAdmin | None = None

    def __call__(self, request: Request) -> Answer:
        """
        Return the response to *request*.

        Raises:
            TidingsError: see `answers.refusal`.
        """
        check_known(request.feed, self.feeds)
        NEEDS[request.route].admit(self.guard, request.feed, request.credential)
        if self.admin is None:
            rule = (
                "are called by `tidings serve` alone; here, run `tidings consume` behind a program"
            )
            raise NoWebhooks(rule, field="hooks")
        return json_answer(*self._reply(self.admin, request.method, Asked(request)))

    def _reply(self, admin: WebhookAdmin, method: str, asked: Asked) -> tuple[int, Document]:
        if method == "PUT":
            return self._put(admin, asked)
        if method == "POST":
            return 200, {"secret": admin.rotate(asked.feed, asked.name, asked.fields("secret"))}
        if method == "DELETE":
            asked.check_query("why", "by")
            why = reason_from(asked.who(asked.query), asked.query.get("why"))
            admin.remove(asked.feed, asked.name, why)
            return 200, {"deleted": asked.name}
        if asked.name:
            return 200, self._shown(admin.registry.webhook(asked.feed, asked.name), asked)
        named = admin.registry.all(asked.feed)
        return 200, {"hooks": [self._shown(each, asked) for _, each in sorted(named.items())]}

    def _put(self, admin: WebhookAdmin, asked: Asked) -> tuple[int, Document]:
        body = asked.fields(*_FIELDS, *filters.FIELDS)
        wanted = filters.from_lists(body, InvalidWebhook)
        hook, secret = admin.put(asked.feed, asked.name, body, wanted)
        shown = self._shown(hook, asked)
        return (201, {**shown, "secret": secret}) if secret else (200, shown)

    def _shown(self, hook: Webhook, asked: Asked) -> Document:
        """Return the hook with the data of its consumer; secrets are returned only on creation."""
        now_ms = self.consumers.clock()
        own: Document = {
            "name": hook.name,
            "url": hook.url,
            "format": hook.format,
            "attempts": hook.attempts,
            "secrets": len(hook.signing(now_ms)),
        }
        try:
            consumer, lag = self.consumers.one(asked.feed, hook.name)
        except UnknownConsumer:
            return {**own, "state": "without a consumer"}  # the consumer was deleted separately
        own["again_ms"] = again_ms(consumer) or None
        return {**consumer_document(consumer, lag, now_ms), **own}
