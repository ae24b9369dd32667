"""The webhooks of a feed, stored in one document, and the operator's actions on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.consumers import position
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.service import check_name
from tidings.core.hooks.webhook import (
    InvalidWebhook,
    Secret,
    UnknownWebhook,
    Webhook,
    WebhookExists,
    checked_secret,
    secret_of,
    webhook_from,
)
from tidings.core.model.feeds import public_name
from tidings.core.records import until_saved

if TYPE_CHECKING:
    from tidings.core.changeagent.documents import OperatorDocuments
    from tidings.core.consumers.service import Consumers, Reason
    from tidings.core.effects import Clock
    from tidings.core.hooks.attempts import Attempt, AttemptLog
    from tidings.core.model.filters import Filter

_DOCUMENT = "webhooks"
Named = Mapping[str, Webhook]


@dataclass(frozen=True, slots=True)
class Registry:
    """The registered webhooks of each feed."""

    documents: OperatorDocuments

    def all(self, feed: str) -> Named:
        """Return the webhooks of *feed* by name."""
        return _parse(self.documents.operator_document(feed, _DOCUMENT).text)

    def webhook(self, feed: str, name: str) -> Webhook:
        """Return the webhook *name*.

        Raises:
            UnknownWebhook: the feed has no such webhook.
        """
        return _one_of(self.all(feed), name)

    def change(self, feed: str, change: Callable[[Named], Named]) -> Named:
        """Apply *change* to the stored webhooks return the result; retry on concurrent writes.

        Raises:
            Unavailable: other processes kept writing.
        """

        def attempt() -> Named | None:
            current = self.documents.operator_document(feed, _DOCUMENT)
            made = change(_parse(current.text))
            text = json.dumps([asdict(each) for each in made.values()], separators=(",", ":"))
            changed = replace(current, text=text)
            return made if self.documents.write(feed, _DOCUMENT, changed) else None

        return until_saved(attempt, f"the webhooks of {public_name(feed)}")


@dataclass(frozen=True, slots=True)
class WebhookAdmin:
    """The operator's actions on webhooks. For other actions, use the named consumer of the webhook.

    *random* returns the given number of unpredictable bytes. *private* is True if the deployment
    calls webhooks at private addresses. *attempts* has the last attempts of each webhook.
    """

    registry: Registry
    consumers: Consumers
    clock: Clock
    random: Callable[[int], bytes]
    attempts: AttemptLog
    private: bool = False

    def put(
        self,
        feed: str,
        name: str,
        given: Mapping[str, Any],
        wanted: Filter,
        *,
        only_new: bool = False,
    ) -> tuple[Webhook, str]:
        """Create or change a webhook; return the webhook and its new secret, "" for a change.

        An existing webhook gets the fields of *given* and the filter *wanted*, and keeps its
        position and its secret. A new webhook begins at the position in the field `from`: `now`,
        `oldest` or the id of an event. With *only_new*, refuse an existing webhook.

        Raises:
            InvalidWebhook, InvalidConsumer, WebhookExists: nothing was changed.
        """
        check_name(name)
        start = given.get("from", "now")
        if start == "copy":
            rule = "must not be `copy`, because a webhook sends only the log"
            raise InvalidWebhook(rule, field="from")
        fresh = self._secret(given)
        secrets = (Secret(fresh),)
        changed = webhook_from(name, given, secrets)
        # The place of `now` is read here, because that may take longer than a transaction should.
        begin = position.encode_position(self.consumers.position_of(feed, start, "from"))
        self._check_free(feed, name)

        def enter(named: Named) -> Named:
            if only_new and name in named:
                raise WebhookExists("exists already", field="name", value=name)
            if name not in named and len(named) >= limits.WEBHOOKS_MAX:
                rule = f"a feed has at most {limits.WEBHOOKS_MAX} webhooks"
                raise InvalidWebhook(rule, field="name", value=name)
            kept = named[name].secrets if name in named else secrets
            return {**named, name: replace(changed, secrets=kept)}

        def write() -> Webhook:
            made = self.registry.change(feed, enter)[name]
            self.consumers.register(
                feed, name, Consumer(feed, name, wanted), begin or position.OLDEST
            )
            return made

        # In one transaction, because a retry after a crash in between would not return the secret.
        made = self.consumers.view.reader.log.together(write)
        return made, fresh if made.secrets == secrets else ""

    def _check_free(self, feed: str, name: str) -> None:
        """Check that *name* already is a webhook, or can become one."""
        if name in self.registry.all(feed):
            return
        if self.consumers.store.consumer(feed, name) is not None:
            raise InvalidWebhook("is a consumer without a webhook", field="name", value=name)
        self.consumers.check_room(feed)

    def rotate(self, feed: str, name: str, given: Mapping[str, Any]) -> str:
        """Store and return a new secret. The old one also signs for `limits.WEBHOOK_ROTATION_MS`.

        Raises:
            UnknownWebhook, InvalidWebhook: nothing was changed.
        """
        fresh, now_ms = self._secret(given), self.clock()

        def change(named: Named) -> Named:
            return {**named, name: _one_of(named, name).rotate(fresh, now_ms)}

        self.registry.change(feed, change)
        return fresh

    def remove(self, feed: str, name: str, why: Reason) -> None:
        """Delete the webhook, its consumer and its parked messages.

        Raises:
            UnknownWebhook: the feed has no such webhook.
        """
        self.registry.webhook(feed, name)

        def write() -> None:
            if self.consumers.store.consumer(feed, name) is not None:
                self.consumers.remove(feed, name, why)
            self.registry.change(feed, lambda named: {k: v for k, v in named.items() if k != name})

        self.consumers.view.reader.log.together(write)
        self.attempts.forget(feed, name)

    def last_attempts(self, feed: str, name: str) -> list[Attempt]:
        """Return the last attempts of the webhook *name*, the latest first.

        Raises:
            UnknownWebhook: the feed has no such webhook.
        """
        self.registry.webhook(feed, name)
        return self.attempts.last(feed, name)

    def _secret(self, given: Mapping[str, Any]) -> str:
        if "secret" in given:
            return checked_secret(given["secret"])
        return secret_of(self.random(limits.WEBHOOK_SECRET_BYTES))


def _one_of(named: Named, name: str) -> Webhook:
    if name not in named:
        raise UnknownWebhook("no such webhook of this feed", field="name", value=name)
    return named[name]


def _parse(text: str) -> Named:
    stored = json.loads(text or "[]")
    return {
        each["name"]: Webhook(**{**each, "secrets": tuple(Secret(**s) for s in each["secrets"])})
        for each in stored
    }
