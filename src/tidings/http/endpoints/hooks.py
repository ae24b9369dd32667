"""The routes of webhooks (PROTOCOL 19)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tidings.core import limits
from tidings.core.auth.guard import ADMIN
from tidings.core.errors import InvalidConsumer, Rejected, UnknownConsumer
from tidings.core.hooks.webhook import (
    REFUSED_ADDRESS,
    InvalidWebhook,
    UnknownWebhook,
    WebhookExists,
    again_ms,
    may_be_called,
)
from tidings.core.model.envelopes import CLOUDEVENTS, FORMATS
from tidings.core.model.timestamps import from_ms
from tidings.http import wire
from tidings.http.endpoints.consumers import (
    STATES,
    ConsumerReport,
    Deleted,
    Filtered,
    OperatorRequest,
    reason_of,
)
from tidings.http.wire import Call, EntryId, Example, Fields, Given, Kind, Ms, Time, Unset

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Guard
    from tidings.core.consumers.service import Consumers
    from tidings.core.hooks.registry import WebhookAdmin
    from tidings.core.hooks.webhook import Webhook
    from tidings.http.wire import Declared

_HOOKS = "/feeds/{feed}/hooks"
_HOOK = _HOOKS + "/{name}"
_URL = "https://example.com/orders"
_SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
Format = Annotated[str, Kind({"type": "string", "enum": [*FORMATS]}), Example(CLOUDEVENTS)]
Secret = Annotated[str, Kind({"type": "string", "pattern": "^whsec_[A-Za-z0-9+/=]{32,88}$"})]


class NoWebhooks(Rejected, code="no_webhooks", status=501):
    """This deployment calls no webhooks."""


class WebhookRequest(Filtered):
    """The fields of a webhook, which `webhook_from` and `WebhookAdmin.put` check."""

    url: Annotated[
        str | None, Kind({**wire.TEXT, "maxLength": limits.WEBHOOK_URL_CHARS_MAX}), Example(_URL)
    ]
    from_: (
        Annotated[
            object,
            Kind({"anyOf": [{"type": "string", "enum": ["oldest", "now"]}, wire.ID]}),
            "start: now, oldest or the id of a message",
        ]
        | None
    ) = None
    format: Annotated[Format, "format of the events, cloudevents by default"] | None = None
    attempts: (
        Annotated[
            int,
            Kind({"type": "integer", "minimum": 1, "maximum": limits.WEBHOOK_ATTEMPTS_MAX}),
            "attempts before a message is parked: 10 (default) take 75 hours, 4 take 35 minutes",
        ]
        | None
    ) = None
    secret: Secret | None = None


class WebhookReport(ConsumerReport, name="Webhook", is_partial=True):
    """A webhook with its consumer, unless the consumer was deleted separately."""

    name: Annotated[str, Example("search")]
    state: Annotated[str, wire.one_of(*STATES, "without a consumer"), Example("idle")]
    url: Annotated[str, Example(_URL)]
    format: Format
    attempts: Annotated[int, Example(limits.WEBHOOK_ATTEMPTS_MAX)]
    secrets: Annotated[int, Example(1)]
    again_ms: Ms | Unset | None = wire.UNSET
    secret: str | Unset = wire.UNSET
    warnings: list[str] | Unset = wire.UNSET


class WebhookList(Fields, name="Webhooks"):
    hooks: list[WebhookReport]


class RotationRequest(Given, name="WebhookSecretRequest"):
    secret: Secret | None = None


class NewSecret(Fields, name="WebhookSecret"):
    secret: Annotated[str, Example(_SECRET)]


class AttemptReport(Fields, name=""):
    at: Time
    id: EntryId
    number: Annotated[int, Kind({"type": "integer", "minimum": 1})]
    accepted: bool
    status: Annotated[int | None, Example(503)]
    error: Annotated[str | None, Example("WebHook returned status 503")]
    duration_ms: int


class AttemptList(Fields, name="WebhookAttempts"):
    since: Time
    attempts: Annotated[list[AttemptReport], wire.most(limits.WEBHOOK_ATTEMPTS_KEPT)]


_BY_NAME = (NoWebhooks, UnknownWebhook)


@dataclass(frozen=True)
class WebhookRouter(wire.Routes, function="consume", error=InvalidConsumer):
    """The endpoint of the routes of webhooks. Without *admin*, the deployment calls no webhooks."""

    consumers: Consumers
    guard: Guard
    optional_admin: WebhookAdmin | None = None

    @property
    def admin(self) -> WebhookAdmin:
        if self.optional_admin is None:
            rule = "are called only by `tidings serve`; run `tidings consume` with a program"
            raise NoWebhooks(rule, field="hooks")
        return self.optional_admin

    @wire.get(_HOOKS, ADMIN, "19.2", errors=(NoWebhooks,))
    def list_webhooks(self, call: Call) -> WebhookList:
        """Return all webhooks."""
        named = self.admin.registry.all(call.feed)
        return WebhookList(hooks=[self._report(each, call) for _, each in sorted(named.items())])

    @wire.put(
        _HOOK,
        ADMIN,
        "19.2",
        headers=("If-None-Match",),
        status=201,
        more=(200,),
        errors=(InvalidWebhook, NoWebhooks, InvalidConsumer, WebhookExists),
    )
    def put_webhook(self, call: Call, body: WebhookRequest) -> WebhookReport:
        """Create or change a webhook."""
        wanted = body.filter(InvalidWebhook)
        only_new = call.request.only_new
        hook, secret = self.admin.put(call.feed, call.name, body.sent, wanted, only_new=only_new)
        call.status = 201 if secret else 200
        is_called = may_be_called(hook.url, private=self.admin.private)
        warnings = wire.UNSET if is_called else [REFUSED_ADDRESS]
        return self._report(hook, call, warnings=warnings, secret=secret or wire.UNSET)

    @wire.get(_HOOK, ADMIN, "19.2", errors=_BY_NAME)
    def get_webhook(self, call: Call) -> WebhookReport:
        """Return one webhook."""
        return self._report(self.admin.registry.webhook(call.feed, call.name), call)

    @wire.get(_HOOK + "/attempts", ADMIN, "19.8", errors=(*_BY_NAME, InvalidConsumer))
    def list_webhook_attempts(self, call: Call, query: wire.Nothing) -> AttemptList:
        """Return the last attempts of a webhook.

        The latest is the first. The URL is left out, because it may contain a password.
        """
        found = [
            AttemptReport.copy_of(
                each,
                at=from_ms(each.at_ms),
                accepted=not each.error,
                status=each.status or None,
                error=each.error or None,
                duration_ms=each.took_ms,
            )
            for each in self.admin.last_attempts(call.feed, call.name)
        ]
        return AttemptList(since=from_ms(self.admin.attempts.since_ms), attempts=found)

    @wire.delete(_HOOK, ADMIN, "19.2", errors=(*_BY_NAME, InvalidConsumer))
    def delete_webhook(self, call: Call, query: OperatorRequest) -> Deleted:
        """Delete a webhook and its consumer."""
        self.admin.remove(call.feed, call.name, reason_of(call, query))
        return Deleted(deleted=call.name)

    @wire.post(
        _HOOK + "/rotate", ADMIN, "19.4", errors=(*_BY_NAME, InvalidWebhook, InvalidConsumer)
    )
    def rotate_webhook_secret(self, call: Call, body: RotationRequest) -> NewSecret:
        """Create another secret."""
        return NewSecret(secret=self.admin.rotate(call.feed, call.name, body.sent))

    def admit(self, found: Declared, call: Call) -> Allowed:
        allowed = wire.Routes.admit(self, found, call)
        assert self.admin  # raises `NoWebhooks` before any other error
        return allowed

    def _report(self, hook: Webhook, call: Call, **others: Any) -> WebhookReport:
        """Return the webhook with the data of its consumer, but without its secrets."""
        now_ms = self.consumers.clock()
        others |= {"secrets": len(hook.signing(now_ms))}
        try:
            consumer, lag = self.consumers.one(call.feed, hook.name)
        except UnknownConsumer:
            return WebhookReport.copy_of(hook, state="without a consumer", **others)
        of_consumer = vars(ConsumerReport.of(consumer, lag, now_ms))
        again = again_ms(consumer) or None
        return WebhookReport.copy_of(hook, **{**of_consumer, **others, "again_ms": again})
