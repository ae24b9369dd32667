"""The routes of webhooks (PROTOCOL 19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core.consumers.service import reason_from
from tidings.core.errors import Rejected, UnknownConsumer
from tidings.core.hooks.webhook import (
    REFUSED_ADDRESS,
    InvalidWebhook,
    again_ms,
    may_be_called,
)
from tidings.core.model import filters
from tidings.core.model.timestamps import from_ms
from tidings.http.answers import json_answer
from tidings.http.endpoints.consumers import ConsumerRequest, Document, consumer_document
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.consumers.service import Consumers
    from tidings.core.hooks.registry import WebhookAdmin
    from tidings.core.hooks.webhook import Webhook
    from tidings.core.model.feeds import FeedNames
    from tidings.http.request import Answer, Request

_FIELDS = ("url", "from", "format", "attempts", "secret")


ATTEMPTS = "/attempts"  # the end of the path of the last attempts


class NoWebhooks(Rejected, code="no_webhooks", status=501):
    """This deployment calls no webhooks."""


@dataclass(frozen=True, slots=True)
class WebhookRouter:
    """The endpoint of the routes of webhooks. Without *admin*, the deployment calls no webhooks."""

    consumers: Consumers
    guard: Guard
    feeds: FeedNames
    admin: WebhookAdmin | None = None

    def __call__(self, request: Request) -> Answer:
        feed = self.feeds.key(request.feed)
        NEEDS[request.route].admit(self.guard, feed, request.credential)
        if self.admin is None:
            rule = "are called only by `tidings serve`; run `tidings consume` with a program"
            raise NoWebhooks(rule, field="hooks")
        about = ConsumerRequest(request, feed)
        if request.route.endswith(ATTEMPTS):
            return json_answer(200, _attempts(self.admin, about))
        return json_answer(*self._reply(self.admin, request.method, about))

    def _reply(
        self, admin: WebhookAdmin, method: str, consumer_request: ConsumerRequest
    ) -> tuple[int, Document]:
        if method == "PUT":
            return self._put(admin, consumer_request)
        if method == "POST":
            return 200, {
                "secret": admin.rotate(
                    consumer_request.feed, consumer_request.name, consumer_request.fields("secret")
                )
            }
        if method == "DELETE":
            consumer_request.check_query("why", "by")
            why = reason_from(
                consumer_request.who(consumer_request.query), consumer_request.query.get("why")
            )
            admin.remove(consumer_request.feed, consumer_request.name, why)
            return 200, {"deleted": consumer_request.name}
        if consumer_request.name:
            return 200, self._describe(
                admin.registry.webhook(consumer_request.feed, consumer_request.name),
                consumer_request,
            )
        named = admin.registry.all(consumer_request.feed)
        return 200, {
            "hooks": [self._describe(each, consumer_request) for _, each in sorted(named.items())]
        }

    def _put(self, admin: WebhookAdmin, consumer_request: ConsumerRequest) -> tuple[int, Document]:
        body = consumer_request.fields(*_FIELDS, *filters.FIELDS, filters.ERASURES)
        wanted = filters.of_consumer(body, InvalidWebhook)
        hook, secret = admin.put(
            consumer_request.feed,
            consumer_request.name,
            body,
            wanted,
            only_new=consumer_request.only_new,
        )
        shown = self._describe(hook, consumer_request)
        if not may_be_called(hook.url, private=admin.private):
            shown["warnings"] = [REFUSED_ADDRESS]
        return (201, {**shown, "secret": secret}) if secret else (200, shown)

    def _describe(self, hook: Webhook, consumer_request: ConsumerRequest) -> Document:
        """Return the webhook with the data of its consumer, but without its secrets."""
        now_ms = self.consumers.clock()
        own: Document = {
            "name": hook.name,
            "url": hook.url,
            "format": hook.format,
            "attempts": hook.attempts,
            "secrets": len(hook.signing(now_ms)),
        }
        try:
            consumer, lag = self.consumers.one(consumer_request.feed, hook.name)
        except UnknownConsumer:
            return {**own, "state": "without a consumer"}  # the consumer was deleted separately
        own["again_ms"] = again_ms(consumer) or None
        return {**consumer_document(consumer, lag, now_ms), **own}


def _attempts(admin: WebhookAdmin, about: ConsumerRequest) -> Document:
    """Return the last attempts of a webhook, the latest first, without its URL."""
    about.check_query()
    return {
        "since": from_ms(admin.attempts.since_ms),
        "attempts": [
            {
                "at": from_ms(each.at_ms),
                "id": each.id,
                "number": each.number,
                "accepted": not each.error,
                "status": each.status or None,
                "error": each.error or None,
                "duration_ms": each.took_ms,
            }
            for each in admin.last_attempts(about.feed, about.name)
        ],
    }
