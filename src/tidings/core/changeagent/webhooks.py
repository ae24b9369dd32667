"""Webhooks that can veto a change before it is appended, and their answers.

All hooks of a feed are called at the same time, and all have to accept. A hook must not have an
address in the deployment's own network, because the answers would reveal which hosts exist there. A
deployment may allow such addresses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tidings.core import limits
from tidings.core.errors import InvalidSetting, RefusedByHook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    # A function that sends a change, as JSON, to all hooks in parallel, and returns their verdicts
    # in order.
    WebhookVeto = Callable[[Sequence["Hook"], str], Sequence["Verdict"]]
    # A function that sends all requests in parallel, and returns the verdict for each, in order.
    # When the call returns, nothing more is sent for these requests.
    Post = Callable[[Sequence["Outgoing"]], Sequence["Verdict"]]


_SCHEMES = ("http", "https")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
# The text that is shown instead of the value of a header that may be a credential. If an operator
# writes this text back, the stored value is kept.
REDACTED = "redacted"
_SECRET_NAME = re.compile(
    "auth|cookie|credential|key|pass|secret|session|sign|token", re.IGNORECASE
)
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook. *headers* are sent with each request, and may contain secrets."""

    uri: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a call of a hook: the *status* of its answer, or the *failure* of the call.

    The call took *took_ms*.
    """

    status: int = 0
    failure: str = ""
    took_ms: int = field(default=0, compare=False)

    @property
    def accepts(self) -> bool:
        return 200 <= self.status < 300

    @property
    def refuses(self) -> bool:
        """Return True if the hook rejected the change. Other errors: the hook is broken."""
        return 400 <= self.status < 500

    def __str__(self) -> str:
        return self.failure or f"WebHook returned status {self.status}"


def check(verdicts: Sequence[Verdict]) -> None:
    """Check that all hooks accept.

    Raises:
        RefusedByHook: a hook does not accept. The error has each failure, and the index of the
            hook.
    """
    failed = [(at, each) for at, each in enumerate(verdicts) if not each.accepts]
    if failed:
        lines = "".join(f"Error {at}: {each}\n" for at, each in failed)
        raise RefusedByHook(lines, broken=not all(each.refuses for _, each in failed))


def hooks_from(given: object) -> tuple[Hook, ...]:
    """Parse *given*, the field `webHooks` of a configuration, and return the hooks.

    Raises:
        InvalidSetting: a hook breaks its rule.
    """
    if given is None:
        return ()
    if not isinstance(given, list):
        raise InvalidSetting("webHooks must be a list")
    if len(given) > limits.HOOKS_MAX:
        raise InvalidSetting(f"webHooks holds at most {limits.HOOKS_MAX} entries")
    return tuple(_hook(each, f"webHooks[{at}]") for at, each in enumerate(given))


def _hook(given: object, where: str) -> Hook:
    if not isinstance(given, dict) or not {*given} <= {"uri", "headers"}:
        raise InvalidSetting(f"{where} must be a mapping with uri and, optionally, headers")
    return Hook(
        checked_uri(given.get("uri"), f"{where}.uri"), _headers(given.get("headers"), where)
    )


def checked_uri(given: object, where: str) -> str:
    """Return *given* if it is valid as the address of a hook.

    Raises:
        InvalidSetting: *given* is not a valid address; the error names the field.
    """
    if not isinstance(given, str) or not re.fullmatch(r"[!-~]+", given):
        raise InvalidSetting(f"{where} must be an address in ASCII without blanks")
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError:
        raise InvalidSetting(f"{where} is not a valid address") from None
    if parts.scheme not in _SCHEMES or not parts.hostname or port == 0:
        raise InvalidSetting(f"{where} must begin with http:// or https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidSetting(f"{where} must not contain a user or password; use headers")
    return given


def _headers(given: Any, where: str) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise InvalidSetting(f"{where}.headers must map names to strings")
    for name, value in given.items():
        named = isinstance(name, str) and _HEADER_NAME.fullmatch(name)
        if not named or not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidSetting(f"{where}.headers must map names to strings, both printable")
    return tuple(given.items())


def as_document(hooks: Sequence[Hook]) -> list[Mapping[str, object]]:
    """Return *hooks* in the form of the document that `hooks_from` parses."""
    return [
        {"uri": each.uri, **({"headers": dict(each.headers)} if each.headers else {})}
        for each in hooks
    ]


def redact_headers(hooks: Sequence[Hook]) -> tuple[Hook, ...]:
    """Return *hooks* with `REDACTED` for the value of each header that may be a credential."""
    return tuple(
        replace(
            hook,
            headers=tuple(
                (name, REDACTED if _SECRET_NAME.search(name) else value)
                for name, value in hook.headers
            ),
        )
        for hook in hooks
    )


def with_stored(hooks: Sequence[Hook], stored: Sequence[Hook]) -> tuple[Hook, ...]:
    """Return *hooks* with each header value `REDACTED` replaced by the stored value.

    Raises:
        InvalidSetting: no hook of *stored* with the same address has the header.
    """
    values = {(hook.uri, name.lower()): value for hook in stored for name, value in hook.headers}

    def header(hook: Hook, at: int, name: str, value: str) -> tuple[str, str]:
        if value != REDACTED or not _SECRET_NAME.search(name):
            return name, value
        if (hook.uri, name.lower()) not in values:
            rule = f"{name} has no stored value that {REDACTED} could stand for"
            raise InvalidSetting(f"webHooks[{at}].headers: {rule}")
        return name, values[hook.uri, name.lower()]

    return tuple(
        replace(hook, headers=tuple(header(hook, at, *pair) for pair in hook.headers))
        for at, hook in enumerate(hooks)
    )


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A POST of *body* to *url*; *headers* may contain secrets."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: str = field(repr=False)
