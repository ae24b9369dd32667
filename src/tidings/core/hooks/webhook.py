"""A webhook: its endpoint, and the signature of its messages (Standard Webhooks)."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.changeagent.webhooks import checked_uri
from tidings.core.errors import InvalidSetting, Rejected
from tidings.core.model.envelopes import CLOUDEVENTS, FORMATS
from tidings.core.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)  # allowed by Standard Webhooks
_KINDS = {CLOUDEVENTS: "application/cloudevents+json"}
# Delays between attempts, as in Standard Webhooks; a message is parked after the last attempt.
_DELAYS_S = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
assert len(_DELAYS_S) == limits.WEBHOOK_ATTEMPTS_MAX - 1


class InvalidWebhook(Rejected, code="invalid_webhook"):
    """A webhook breaks its rule."""


class UnknownWebhook(Rejected, code="unknown_webhook", status=404):
    """The feed has no such webhook."""


@dataclass(frozen=True, slots=True)
class Secret:
    """
    A secret in the form *text* that its owner stores.

    It signs until *until_ms*; 0: it is the current secret.
    """

    text: str = field(repr=False)
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Webhook:
    """
    An endpoint that receives the messages of the consumer *name*.

    A message is parked after *attempts* attempts.
    """

    name: str
    url: str
    secrets: tuple[Secret, ...]
    format: str = CLOUDEVENTS
    attempts: int = limits.WEBHOOK_ATTEMPTS_MAX

    def signing(self, now_ms: int) -> list[str]:
        """Return the secrets that sign at *now_ms*, the current one first."""
        return [each.text for each in self.secrets if not 0 < each.until_ms <= now_ms]

    def headers(self, message_id: str, body: str, now_ms: int) -> dict[str, str]:
        """Return the headers of the attempt at *now_ms* to send *body*."""
        seconds = str(now_ms // 1000)
        signed = f"{message_id}.{seconds}.{body}".encode()
        return {
            "content-type": _KINDS.get(self.format, "application/json"),
            "user-agent": f"tidings/{VERSION}",
            "webhook-id": message_id,
            "webhook-timestamp": seconds,
            "webhook-signature": " ".join(_signature(s, signed) for s in self.signing(now_ms)),
        }

    def rotated(self, secret: str, now_ms: int) -> Webhook:
        """
        Return the webhook with *secret*; of the older ones only the last one signs, for a while.
        """
        current = self.secrets[0]
        before = replace(current, until_ms=now_ms + limits.WEBHOOK_ROTATION_MS)
        return replace(self, secrets=(Secret(secret), before))


def delay_ms(times: int) -> int:
    """Return the delay after attempt number *times* of a message."""
    return _DELAYS_S[min(times, len(_DELAYS_S)) - 1] * 1000


def secret_of(key: bytes) -> str:
    """Return the secret *key* in the form that its owner stores."""
    return SECRET_PREFIX + b64encode(key).decode()


def checked_secret(given: object) -> str:
    """
    Return *given* if it is a secret of Standard Webhooks.

    Raises:
        InvalidWebhook: *given* is not a secret. The error does not contain it.
    """
    with suppress(ValueError):  # not base64
        whole = isinstance(given, str) and given.startswith(SECRET_PREFIX)
        if isinstance(given, str) and whole and len(_key(given)) in _SECRET_BYTES:
            return given
    rule = f"must be {SECRET_PREFIX} and 24 to 64 bytes in base64"
    raise InvalidWebhook(rule, field="secret")


def webhook_from(name: str, given: Mapping[str, object], secrets: tuple[Secret, ...]) -> Webhook:
    """
    Return the webhook *name* with the fields `url`, `format` and `attempts` of *given*.

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


def _signature(secret: str, signed: bytes) -> str:
    return f"v1,{b64encode(hmac.digest(_key(secret), signed, 'sha256')).decode()}"
