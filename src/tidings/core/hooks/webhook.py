"""Webhooks and their delivery by a worker, with the signatures of Standard Webhooks.

Messages of different objects are sent in parallel, and messages of one object one after the other.
If the endpoint does not accept a message, no further messages are sent to it. This message is sent
again, alone and with growing delays. After the last attempt it is parked, that is, set aside for an
operator.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidings.core import limits
from tidings.core.catchup.matching import with_ref
from tidings.core.changeagent.webhooks import Outgoing, checked_uri
from tidings.core.consumers.position import rank
from tidings.core.consumers.service import Acknowledgement, Reason
from tidings.core.effects import is_ahead
from tidings.core.errors import (
    ConsumerFellOff,
    ConsumerHeld,
    FenceLost,
    InvalidConsumer,
    InvalidSetting,
    NothingDone,
    Rejected,
)
from tidings.core.hooks.attempts import Attempt
from tidings.core.model.addresses import may_call
from tidings.core.model.envelopes import CLOUDEVENTS, FORMATS, encoder
from tidings.core.model.events import Event, content_of
from tidings.core.model.feeds import public_name
from tidings.core.model.operations import key_of
from tidings.core.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.changeagent.webhooks import Post, Verdict
    from tidings.core.consumers.consumer import Consumer
    from tidings.core.consumers.log_view import Entry
    from tidings.core.consumers.service import Consumers
    from tidings.core.effects import Runtime
    from tidings.core.hooks.attempts import AttemptLog
    from tidings.core.settings.profiles import ProfileStore


SECRET_PREFIX = "whsec_"
_LOCALHOST = "localhost"
_SECRET_BYTES = range(24, 65)  # allowed by Standard Webhooks
_KINDS = {CLOUDEVENTS: "application/cloudevents+json"}
# The delays between attempts, as in Standard Webhooks.
_DELAYS_S = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
assert len(_DELAYS_S) == limits.WEBHOOK_ATTEMPTS_MAX - 1


class InvalidWebhook(Rejected, code="invalid_webhook"):
    """A field of a webhook breaks its rule."""


class UnknownWebhook(Rejected, code="unknown_webhook", status=404):
    """The feed has no such webhook."""


class WebhookExists(Rejected, code="webhook_exists", status=412):
    """The request would create a webhook, which exists already."""


REFUSED_ADDRESS = (
    "this server does not call the address of the webhook; it calls private addresses only with the"
    " setting TIDINGS_HOOKS_PRIVATE=true, and never those of cloud metadata services"
)


def may_be_called(url: str, *, private: bool) -> bool:
    """Return False if the server never calls *url*, because of the IP address in it.

    The addresses of a name are only known when the webhook is called, except for `localhost`.
    *private* allows private addresses, see `may_call`.
    """
    host = urlsplit(url).hostname or ""
    if host == _LOCALHOST or host.endswith(f".{_LOCALHOST}"):
        return private
    with suppress(ValueError):
        return may_call(host, private=private)
    return True


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret for signatures. *text* is the secret as the owner of the endpoint stores it.

    The secret signs until *until_ms*, which is 0 for the current secret.
    """

    text: str = field(repr=False)
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Webhook:
    """An endpoint that receives the messages of the consumer *name*.

    A message is parked after *attempts* attempts.
    """

    name: str
    url: str
    secrets: tuple[Secret, ...]
    format: str = CLOUDEVENTS
    attempts: int = limits.WEBHOOK_ATTEMPTS_MAX

    def signing(self, now_ms: int) -> list[str]:
        """Return the secrets that sign at *now_ms*, the current secret first."""
        return [each.text for each in self.secrets if not 0 < each.until_ms <= now_ms]

    def headers(self, message_id: str, body: str, now_ms: int) -> dict[str, str]:
        """Return the headers of the attempt at *now_ms* to send *body*."""
        seconds = str(now_ms // 1000)
        signed = f"{message_id}.{seconds}.{body}".encode()
        digests = (hmac.digest(_key(each), signed, "sha256") for each in self.signing(now_ms))
        signatures = (f"v1,{b64encode(each).decode()}" for each in digests)
        return {
            "content-type": _KINDS.get(self.format, "application/json"),
            "user-agent": f"tidings/{VERSION}",
            "webhook-id": message_id,
            "webhook-timestamp": seconds,
            "webhook-signature": " ".join(signatures),
        }

    def rotate(self, secret: str, now_ms: int) -> Webhook:
        """Return the webhook with the new *secret*.

        The previous secret also signs for `limits.WEBHOOK_ROTATION_MS`; earlier secrets do not. A
        rotation to the current secret, such as a repeated one, changes nothing.
        """
        current = self.secrets[0]
        if secret == current.text:
            return self
        before = replace(current, until_ms=now_ms + limits.WEBHOOK_ROTATION_MS)
        return replace(self, secrets=(Secret(secret), before))


def delay_ms(times: int) -> int:
    """Return the delay after attempt number *times* of a message."""
    return _DELAYS_S[min(times, len(_DELAYS_S)) - 1] * 1000


def secret_of(key: bytes) -> str:
    """Return *key* as the text of a secret of Standard Webhooks."""
    return SECRET_PREFIX + b64encode(key).decode()


def checked_secret(given: object) -> str:
    """Return *given* if it is a secret of Standard Webhooks.

    Raises:
        InvalidWebhook: *given* is not a secret. The error does not contain it.
    """
    with suppress(ValueError):  # not base64
        has_prefix = isinstance(given, str) and given.startswith(SECRET_PREFIX)
        if isinstance(given, str) and has_prefix and len(_key(given)) in _SECRET_BYTES:
            return given
    rule = f"must be {SECRET_PREFIX}, followed by 24 to 64 bytes in base64"
    raise InvalidWebhook(rule, field="secret")


def webhook_from(name: str, given: Mapping[str, object], secrets: tuple[Secret, ...]) -> Webhook:
    """Return the webhook *name* with the fields `url`, `format` and `attempts` of *given*.

    Raises:
        InvalidWebhook: a field breaks its rule.
    """
    try:
        url = checked_uri(given.get("url"), "url")
    except InvalidSetting as error:
        raise InvalidWebhook(error.rule, field="url") from None  # the value may contain a password
    if len(url) > limits.WEBHOOK_URL_CHARS_MAX:
        rule = f"holds at most {limits.WEBHOOK_URL_CHARS_MAX} characters"
        raise InvalidWebhook(rule, field="url")
    form = given.get("format", CLOUDEVENTS)
    if form not in FORMATS or not isinstance(form, str):
        raise InvalidWebhook(f"must be one of {', '.join(FORMATS)}", field="format", value=form)
    most = limits.WEBHOOK_ATTEMPTS_MAX
    attempts = given.get("attempts", most)
    if not isinstance(attempts, int) or isinstance(attempts, bool) or not 1 <= attempts <= most:
        rule = f"must be a whole number from 1 to {most}"
        raise InvalidWebhook(rule, field="attempts", value=attempts)
    return Webhook(name, url, secrets, form, attempts)


def _key(secret: str) -> bytes:
    return b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)


_GONE = 410


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """The worker that sends due messages to webhooks.

    *worker* is the name under which it takes leases; no other process may use that name. The
    worker adds each attempt to *attempts*.
    """

    consumers: Consumers
    profiles: ProfileStore
    post: Post
    runtime: Runtime
    worker: str
    attempts: AttemptLog

    def run(self, feed: str, hook: Webhook, *, look: bool) -> int | None:
        """Send due messages to *hook* for at most `limits.WEBHOOK_TURN_MS`.

        Return the time of the next run in ms since 1970, or None if the next page or an action of
        an operator starts the next run. With *look*, also move the consumer's position past entries
        that its filter excludes.

        Raises:
            Unavailable: the stores do not answer.
        """
        consumer = self.consumers.store.consumer(feed, hook.name)
        if consumer is None or consumer.paused or consumer.copying:
            return None
        later_ms = again_ms(consumer)
        waits = self._waits(consumer)
        try:
            if not consumer.retries and (waits or not self._concerns(consumer, look=look)):
                return later_ms if waits else None
            held = self.consumers.lease(feed, hook.name, self.worker).consumer
            held = self._retry(hook, held)
            if not waits:
                return self._send(hook, held)
            self.consumers.release(feed, hook.name, held.fence)
            return later_ms
        except ConsumerHeld:
            return self.runtime.clock() + limits.CONSUMER_LEASE_MS
        except ConsumerFellOff:
            return None  # there is nothing to do until an operator moves the consumer
        except FenceLost:
            return self.runtime.clock()  # an operator changed the consumer

    def _waits(self, consumer: Consumer) -> bool:
        """Return True if the failed message of *consumer* must not be sent again yet."""
        failure = consumer.failure
        if failure is None:
            return False
        return is_ahead(again_ms(consumer), self.runtime.clock(), delay_ms(failure.times))

    def _concerns(self, consumer: Consumer, *, look: bool) -> bool:
        """Return True if *consumer* has a due message or, with *look*, its position can move."""
        if self.consumers.view.due(consumer, 1):
            return True
        ahead = self.consumers.view.advance(consumer) if look else consumer
        return rank(ahead.position) > rank(consumer.position)

    def _retry(self, hook: Webhook, held: Consumer) -> Consumer:
        """Send the parked messages that an operator asked to retry, each alone and once."""
        parked = {each.id: each for each in self.consumers.store.parked(held.feed, held.name)}
        for name in held.retries:
            kept = parked.get(name)
            if kept is None:
                continue  # an operator dropped the message in the meantime
            (verdict,) = self._post(hook, held, [(name, kept.line, kept.attempts + 1)])
            if verdict.accepts:
                held = self._acknowledge(held, Acknowledgement(retried=(name,)))
            else:
                failed = self.consumers.fail(held.feed, held.name, held.fence, name, str(verdict))
                held = failed.consumer
        return held

    def _send(self, hook: Webhook, held: Consumer) -> int | None:
        until_ms = self.runtime.steady() + limits.WEBHOOK_TURN_MS
        while self.runtime.steady() < until_ms:
            batch = self._batch(held)
            if batch:
                held = self._acknowledge(held, Acknowledgement(sending=batch[-1].place))
                messages = [(e.place.encode(), e.line) for e in batch]
                verdicts = self._post(
                    hook, held, [(name, line, _attempt(held, name)) for name, line in messages]
                )
                held, refused = self._acknowledge_accepted(held, batch, verdicts)
                if refused is not None:
                    return self._release_failed(hook, held, *refused)
                continue
            ahead = self._acknowledge(held, Acknowledgement())
            if rank(ahead.position) == rank(held.position):
                self.consumers.release(held.feed, held.name, held.fence)
                return None
            held = ahead
        self.consumers.release(held.feed, held.name, held.fence)
        return self.runtime.clock()

    def _batch(self, held: Consumer) -> list[Entry]:
        """Return the messages to send in parallel, at most one per object.

        An entry up to `held.single` may have been sent before, and is sent alone.
        """
        due = self.consumers.view.due(held, limits.WEBHOOK_AT_ONCE)
        if due and rank(due[0].place) <= rank(held.single):
            return due[:1]
        objects: set[str] = set()
        batch: list[Entry] = []
        for entry in due:
            key = key_of(entry.line)
            if key in objects:
                break
            objects.add(key)
            batch.append(entry)
        return batch

    def _post(
        self, hook: Webhook, held: Consumer, messages: Sequence[tuple[str, str, int]]
    ) -> Sequence[Verdict]:
        """Send *messages*, each with its id, its line and the number of the attempt."""
        at_ms = self.runtime.clock()
        said = self.post([self._request(hook, held, name, line) for name, line, _ in messages])
        made = [
            Attempt(
                at_ms=at_ms,
                id=name,
                number=number,
                status=verdict.status,
                error="" if verdict.accepts else str(verdict),
                took_ms=verdict.took_ms,
            )
            for (name, _, number), verdict in zip(messages, said, strict=True)
        ]
        self.attempts.add(held.feed, held.name, made)
        return said

    def _request(self, hook: Webhook, held: Consumer, name: str, line: str) -> Outgoing:
        event = Event(name, *content_of(line, erasures=held.filter.erasures))
        linked = with_ref(event, self.profiles.profile(held.feed).object_url)
        body = encoder(hook.format, public_name(held.feed), self.runtime.clock)(linked)
        return Outgoing(hook.url, hook.headers(name, body, self.runtime.clock()), body)

    def _acknowledge_accepted(
        self, held: Consumer, batch: Sequence[Entry], verdicts: Sequence[Verdict]
    ) -> tuple[Consumer, tuple[Entry, Verdict] | None]:
        """Acknowledge the accepted messages; return the first refused message and its verdict."""
        results = list(zip(batch, verdicts, strict=True))
        first = next((at for at, (_, said) in enumerate(results) if not said.accepts), len(results))
        through = results[first - 1][0].place if first else None
        ids = tuple(entry.place for entry, said in results[first:] if said.accepts)
        held = self._acknowledge(held, Acknowledgement(through=through, ids=ids))
        return held, results[first] if first < len(results) else None

    def _release_failed(
        self, hook: Webhook, held: Consumer, entry: Entry, said: Verdict
    ) -> int | None:
        """Release *held* after a failure; return the time of the next run, or None if paused."""
        feed, name = held.feed, held.name
        failure = self.consumers.fail(feed, name, held.fence, entry.place.encode(), str(said))
        failed = failure.consumer
        if said.status == _GONE:
            why = Reason(self.worker, "the endpoint answered 410, gone")
            self.consumers.pause(feed, name, why, paused=True)
            return None
        times = failed.failure.times if failed.failure else 1
        if times >= hook.attempts and failed.parked < limits.PARKED_MAX:
            try:
                why = Reason(self.worker, f"not accepted in {times} attempts")
                self.consumers.park(feed, name, why)
            except (InvalidConsumer, NothingDone):
                return again_ms(failed)  # an operator changed the consumer in the meantime
            return self.runtime.clock()
        return again_ms(failed)

    def _acknowledge(self, held: Consumer, done: Acknowledgement) -> Consumer:
        return self.consumers.acknowledge(held.feed, held.name, held.fence, done).consumer


def _attempt(held: Consumer, name: str) -> int:
    """Return the number of the next attempt to send the message *name*."""
    failure = held.failure
    return failure.times + 1 if failure is not None and failure.id == name else 1


def again_ms(consumer: Consumer) -> int:
    """Return the time in ms since 1970 of the next attempt to send the failed message, or 0."""
    failure = consumer.failure
    return failure.at_ms + delay_ms(failure.times) if failure else 0
