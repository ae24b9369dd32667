"""The webhooks of a feed, in one document; and what operators do to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.consumers.consumer import Consumer
from tidings.core.consumers.service import check_name
from tidings.core.errors import Unavailable
from tidings.core.hooks.webhook import (
    InvalidWebhook,
    Secret,
    UnknownWebhook,
    Webhook,
    checked_secret,
    secret_of,
    webhook_from,
)

if TYPE_CHECKING:
    from tidings.core.changeagent.documents import OperatorDocuments
    from tidings.core.consumers.service import Consumers, Reason
    from tidings.core.effects import Clock
    from tidings.core.model.filters import Filter

_DOCUMENT = "webhooks"
_ATTEMPTS = 3  # each loss means that somebody else wrote within the same tenth of a second
Named = Mapping[str, Webhook]


@dataclass(frozen=True, slots=True)
class Registry:
    """Which webhooks there are."""

    documents: OperatorDocuments

    def all(self, feed: str) -> Named:
        """By name."""
        return _parsed(self.documents.operator_document(feed, _DOCUMENT).text)

    def webhook(self, feed: str, name: str) -> Webhook:
        """
        Raises:
            UnknownWebhook: there is none.
        """
        return _one_of(self.all(feed), name)

    def change(self, feed: str, change: Callable[[Named], Named]) -> Named:
        """
        What *change* makes of them, on top of what others wrote meanwhile.

        Raises:
            Unavailable: others kept writing.
        """
        for _ in range(_ATTEMPTS):
            standing = self.documents.operator_document(feed, _DOCUMENT)
            made = change(_parsed(standing.text))
            if self.documents.write(feed, _DOCUMENT, replace(standing, text=_encoded(made))):
                return made
        raise Unavailable(f"the webhooks of {feed} kept changing")


@dataclass(frozen=True, slots=True)
class WebhookAdmin:
    """
    What operators do to webhooks; all else they do to their consumers.

    *random* makes so many bytes that nobody can guess.
    """

    registry: Registry
    consumers: Consumers
    clock: Clock
    random: Callable[[int], bytes]

    def put(
        self, feed: str, name: str, given: Mapping[str, Any], wanted: Filter
    ) -> tuple[Webhook, str]:
        """
        The webhook as it is then, and its secret where that is new; else "".

        One that is there gets the fields of *given* and the filter, and keeps its place and its
        secret. A new one begins at `from`: `now`, `oldest` or the id of an event.

        Raises:
            InvalidWebhook, InvalidConsumer: nothing was changed.
        """
        check_name(name)
        start = given.get("from", "now")
        if start == "copy":
            raise InvalidWebhook("must not be copy: a webhook tells the log", field="from")
        fresh = self._secret(given)
        secrets = (Secret(fresh),)
        changed = webhook_from(name, given, secrets)
        self.consumers.place(feed, start, "from")
        self._check_free(feed, name)

        def enter(named: Named) -> Named:
            if name not in named and len(named) >= limits.WEBHOOKS_MAX:
                rule = f"a feed has at most {limits.WEBHOOKS_MAX} webhooks"
                raise InvalidWebhook(rule, field="name", value=name)
            kept = named[name].secrets if name in named else secrets
            return {**named, name: replace(changed, secrets=kept)}

        # Before its consumer: who is interrupted here asks once more, and it is found to be there.
        made = self.registry.change(feed, enter)[name]
        self.consumers.register(feed, name, Consumer(feed, name, wanted), start)
        return made, fresh if made.secrets == secrets else ""

    def _check_free(self, feed: str, name: str) -> None:
        """
        Raises:
            InvalidWebhook, InvalidConsumer: there is no room for *name*, or it is somebody else's.
        """
        if name in self.registry.all(feed):
            return
        if self.consumers.store.consumer(feed, name) is not None:
            raise InvalidWebhook("is a named consumer that is no webhook", field="name", value=name)
        self.consumers.check_room(feed)

    def rotate(self, feed: str, name: str, given: Mapping[str, Any]) -> str:
        """
        Its new secret; the one before signs beside it for `limits.WEBHOOK_ROTATION_MS`.

        Raises:
            UnknownWebhook, InvalidWebhook: nothing was changed.
        """
        fresh, now_ms = self._secret(given), self.clock()

        def change(named: Named) -> Named:
            return {**named, name: _one_of(named, name).rotated(fresh, now_ms)}

        self.registry.change(feed, change)
        return fresh

    def remove(self, feed: str, name: str, why: Reason) -> None:
        """
        Forget it, its consumer and what is parked.

        Raises:
            UnknownWebhook: there is none.
        """
        self.registry.webhook(feed, name)
        if self.consumers.store.consumer(feed, name) is not None:
            self.consumers.remove(feed, name, why)
        self.registry.change(feed, lambda named: {k: v for k, v in named.items() if k != name})

    def _secret(self, given: Mapping[str, Any]) -> str:
        if "secret" in given:
            return checked_secret(given["secret"])
        return secret_of(self.random(limits.WEBHOOK_SECRET_BYTES))


def _one_of(named: Named, name: str) -> Webhook:
    if name not in named:
        raise UnknownWebhook("no such webhook of this feed", field="name", value=name)
    return named[name]


def _parsed(text: str) -> Named:
    stored = json.loads(text or "[]")
    return {
        each["name"]: Webhook(**{**each, "secrets": tuple(Secret(**s) for s in each["secrets"])})
        for each in stored
    }


def _encoded(named: Named) -> str:
    return json.dumps([asdict(each) for each in named.values()], separators=(",", ":"))
