"""
Every error the client raises.

* ClientError
    * WrongUrl      the address cannot be used; nothing was sent
    * Refused       the server will answer the same again; trying again is useless
        * AccessDenied  no password, or not the right one
        * FellOff       the log does not reach back to where a named consumer stands
    * Lost          the connection failed or ended; `follow` and `Poster` try again
        * Ended         the server ended it in good order, as it does with every stream in its time
    * BackoffFailed a listener has tried as often as it was allowed to
    * WrongState    a state file cannot be read or written
    * NoPassword    a password file cannot be read, or holds none
    * Unwritten     raised by you: a message of a batch could not be written
"""

from __future__ import annotations


class ClientError(Exception):
    """Base class; its text is one sentence for a person."""


class WrongUrl(ClientError):
    """Not an address of the kind that is needed."""


class Refused(ClientError):
    """*status* is the HTTP status (0 on a WebSocket), *code* the one of PROTOCOL 4.6."""

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
    """Nothing was skipped: an operator says where the consumer goes on."""

    verdict = "fell off"


class Lost(ClientError):
    """*after_s* is how long the server asks to be left alone."""

    def __init__(self, reason: str, *, after_s: float = 0) -> None:
        self.reason, self.after_s = reason, after_s
        super().__init__(reason)


class Ended(Lost):
    """The stream is whole up to here."""

    def __init__(self) -> None:
        super().__init__("the server ended the stream")


class BackoffFailed(ClientError):
    """As many registrations in a row have failed as were to be tried."""


class WrongState(ClientError):
    """The state file is no state file, or its folder does not take one."""


class NoPassword(ClientError):
    """The password file is not there, or is another kind of file."""


class Unwritten(ClientError):
    """
    What `write` of a `Worker` raises that knows how far it came.

    The messages before *index* are written and are acknowledged; the one at *index* is not, for
    *reason*, and nor is what follows.
    """

    def __init__(self, index: int, reason: str) -> None:
        self.index, self.reason = index, reason
        super().__init__(reason)
