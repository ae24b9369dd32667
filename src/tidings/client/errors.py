"""Every error the client raises, and whether a retry helps."""

from __future__ import annotations


class ClientError(Exception):
    """The base class of all errors of the client; its text is one sentence for a person."""


class WrongUrl(ClientError):
    """The address cannot be used; nothing was sent."""


class WrongProxy(ClientError):
    """The environment names a proxy that cannot be used; nothing was sent."""


class Refused(ClientError):
    """A final answer, which the server would give again.

    *status* is the HTTP status (0 on a WebSocket), *code* the error code of PROTOCOL 4.6.
    """

    verdict = "refused"

    def __init__(self, message: str, *, status: int = 0, code: str = "") -> None:
        self.message, self.status, self.code = message, status, code
        known = " ".join(part for part in (str(status or ""), code) if part)
        super().__init__(
            f"{self.verdict} ({known}): {message}" if known else f"{self.verdict}: {message}"
        )


class AccessDenied(Refused):
    """The password is missing or wrong."""

    verdict = "invalid credentials"


class FellOff(Refused):
    """The log was trimmed past the consumer's position; an operator has to set a new position."""

    verdict = "fell off"


class Lost(ClientError):
    """The connection failed or ended; `follow` and `Poster` retry.

    *after_s* is how long the server asks the client to wait.
    """

    def __init__(self, reason: str, *, after_s: float = 0) -> None:
        self.reason, self.after_s = reason, after_s
        super().__init__(reason)


class Unreachable(Lost):
    """The server at *url* did not answer, for *reason*; *through* names the proxy, if any."""

    def __init__(self, url: str, reason: str, through: str = "") -> None:
        super().__init__(f"{url} does not answer{through}: {reason}")


class Ended(Lost):
    """The server ended the stream as planned; the stream is complete up to this point."""

    def __init__(self) -> None:
        super().__init__("the server ended the stream")


class WrongAnswer(Lost):
    """The answer is not from a feed; it may come from a proxy."""

    def __init__(self) -> None:
        super().__init__("the answer is not from a feed; check the address, and the proxy if any")


class BackoffFailed(ClientError):
    """A listener has used up the allowed number of consecutive attempts."""


class WrongState(ClientError):
    """The state file does not contain a cursor, or it cannot be read or written."""


class NoPassword(ClientError):
    """The password file is missing, or does not contain a password."""


class Unwritten(ClientError):
    """A message could not be written, for *reason*.

    The *write* function of a `Worker` raises this error if it knows which message failed. The
    messages before *index* are written and are acknowledged. The message at *index* could not be
    written. This message and the following messages are not acknowledged.
    """

    def __init__(self, index: int, reason: str) -> None:
        self.index, self.reason = index, reason
        super().__init__(reason)
