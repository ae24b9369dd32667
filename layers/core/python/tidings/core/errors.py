"""
Every error the feed raises.

* TidingsError
    * Rejected              the request is wrong; nothing was written
        * InvalidOperation      a field breaks its rule
        * InvalidFilter         `types` or `parents` cannot be read
        * InvalidCursor         not a cursor of any kind we know
        * InvalidFeed           not a feed name
        * InvalidKey            not an Idempotency-Key
        * InvalidMessage        a WebSocket message breaks the protocol
        * UnknownFeed           no such feed here
        * TooLarge              a limit of `limits` is passed
        * WrongContentType      a body in a format we do not read
        * KeyReused             an Idempotency-Key came back with another body
        * OutOfTurn             a WebSocket message the session's state does not allow
        * LeaveNotKept          the feed does not keep what `leave=true` needs
        * NoPasswordSet         the feed is closed until its owner sets a password
        * WrongPassword         not the password of the feed for this role, or none
        * WrongKey              not a key of the feed, or one that has ended
        * OutsideKey            the key does not allow what is asked for
        * TooManyRequests       the rate of the key is used up
        * KeyEnded              the key ended with which somebody is connected
        * InvalidSetting        what is to be set for a feed breaks its rule
        * InvalidItem           what is to be published is no item of a declared resource
        * InvalidRegistration   a listener cannot be registered with what it said
        * InvalidSync           a request for a sync breaks its rule
        * InvalidChange         what is posted as a change, or asked of changes, breaks its rule
        * UnknownChange         no such change in the log
        * BelowFloor            the log does not reach back to where a strict reader stands
        * RefusedByHook         a webhook did not accept a change
        * WrongUser             not one of the users of the feed with their password
        * InvalidConsumer       what is said of a named consumer breaks its rule
        * UnknownConsumer       no named consumer of that name
        * UnknownParked         no message of that id is parked
        * ConsumerHeld          another worker holds the consumer
        * FenceLost             the worker that says so does not hold the consumer any more
        * NothingDone           an operator asks for what would change nothing
        * NotWhole              a copy may lack pages, and cannot be promoted without a reason
        * ConsumerFellOff       the log does not reach back to where a consumer stands
        * Chained               the feed is a copy of another one, which is posted to instead
            * Yielded               another feed goes on with the log, and is posted to instead
        * LogFellOff            the log does not reach back to where a chained feed stands
        * InvalidPortion        what is asked of pages or rows breaks its rule
        * OtherLog              a chained feed stands at a page that this log does not have
        * InvalidRelay          what is asked of a chained feed breaks its rule
        * NotChained            the feed is local
        * PlanTooOld            nobody can tell any more what moved since a plan was made
    * UpstreamRefused       the feed that is copied does not let us read it
    * BrokenPortion         what came from the feed that is copied cannot be read
    * BrokenRelay           what is stored of a chained feed cannot be read
    * LeaseLost             another holder took over; stop, write nothing more
    * FellOff               a follower's next page is no longer in the log
    * PagesLost             pages are gone that the log should have: see `reader`
    * PlanMissing           the job of a sync ended well and left no plan
    * LogIncomplete         the log lacks pages that the state has handled
    * BrokenPart            a part of the archive cannot be read
    * Unavailable           a store did not answer in time; try again
"""

from __future__ import annotations


class TidingsError(Exception):
    """Base class; caught at the edge of a function, nowhere else."""


class Rejected(TidingsError):
    """
    The client's fault. Says which field, what it held and what rule it broke.

    `status` is the HTTP status the edge answers with, `code` is stable and machine readable.
    """

    status = 400
    code = "rejected"

    def __init__(self, rule: str, *, field: str = "", value: object = None) -> None:
        self.rule, self.field, self.value = rule, field, value
        super().__init__(f"{field}: {rule}" if field else rule)

    def body(self) -> dict[str, object]:
        """The error as clients see it; a long value is cut so that an answer stays small."""
        return {
            "code": self.code,
            "message": str(self),
            "field": self.field,
            "value": _shown(self.value),
            "rule": self.rule,
        }


# An error body repeats what was sent so that it can be found; a page of it helps nobody.
_VALUE_CHARS_MAX = 120


def _shown(value: object) -> str:
    try:
        shown = repr(value)
    except ValueError:
        return "a number with too many digits"  # more than Python writes down
    return shown if len(shown) <= _VALUE_CHARS_MAX else f"{shown[:_VALUE_CHARS_MAX]}..."


class InvalidOperation(Rejected):
    code = "invalid_operation"


class InvalidFilter(Rejected):
    code = "invalid_filter"


class InvalidCursor(Rejected):
    code = "invalid_cursor"


class InvalidFeed(Rejected):
    code = "invalid_feed"


class InvalidKey(Rejected):
    code = "invalid_idempotency_key"


class InvalidMessage(Rejected):
    code = "invalid_message"


class UnknownFeed(Rejected):
    status = 404
    code = "unknown_feed"


class TooLarge(Rejected):
    status = 413
    code = "too_large"


class WrongContentType(Rejected):
    status = 415
    code = "wrong_content_type"


class KeyReused(Rejected):
    status = 422
    code = "idempotency_key_reused"


class OutOfTurn(Rejected):
    status = 409
    code = "out_of_turn"


class LeaveNotKept(Rejected):
    code = "leave_not_kept"


class NoPasswordSet(Rejected):
    status = 401
    code = "no_password_set"


class WrongPassword(Rejected):
    status = 401
    code = "wrong_password"


class WrongKey(Rejected):
    status = 401
    code = "wrong_key"


class OutsideKey(Rejected):
    """Who asks is known, and may not have this; *rule* never tells what it was."""

    status = 403
    code = "outside_key"

    def __init__(self, rule: str, *, field: str = "key") -> None:
        super().__init__(rule, field=field)


class TooManyRequests(Rejected):
    """*retry_after_s* is when the rate allows the next one."""

    status = 429
    code = "too_many_requests"

    def __init__(self, rule: str, *, retry_after_s: int) -> None:
        super().__init__(rule, field="key")
        self.retry_after_s = retry_after_s


class KeyEnded(Rejected):
    """Told to who is connected before the connection is closed."""

    status = 401
    code = "key_ended"


class InvalidSetting(Rejected):
    code = "invalid_setting"


class InvalidItem(Rejected):
    code = "invalid_item"


class InvalidRegistration(Rejected):
    """Its text, without a code, is told to the listener before the connection ends."""

    code = "invalid_registration"


class InvalidSync(Rejected):
    code = "invalid_sync"


class InvalidChange(Rejected):
    code = "invalid_change"


class UnknownChange(Rejected):
    status = 404
    code = "unknown_change"


class BelowFloor(Rejected):
    """*floor* is what to ask `since` with instead: what is behind it is all still there."""

    status = 410
    code = "below_floor"

    def __init__(self, since: int, floor: int, rule: str = "") -> None:
        rule = rule or f"is below the floor {floor}: what was in between is gone"
        super().__init__(rule, field="since", value=since)
        self.floor = floor


class RefusedByHook(Rejected):
    """*status* 400: each one that failed answered with 4xx; 502: one of them is broken."""

    code = "refused_by_hook"

    def __init__(self, failures: str, *, broken: bool) -> None:
        super().__init__(failures)
        self.status = 502 if broken else 400


class WrongUser(Rejected):
    status = 401
    code = "wrong_user"


class InvalidConsumer(Rejected):
    code = "invalid_consumer"


class UnknownConsumer(Rejected):
    status = 404
    code = "unknown_consumer"


class UnknownParked(Rejected):
    status = 404
    code = "unknown_parked"


class ConsumerHeld(Rejected):
    status = 409
    code = "consumer_held"


class FenceLost(Rejected):
    status = 409
    code = "fence_lost"


class NothingDone(Rejected):
    status = 409
    code = "nothing_done"


class NotWhole(Rejected):
    status = 409
    code = "not_whole"


class ConsumerFellOff(Rejected):
    status = 410
    code = "fell_off"


class Chained(Rejected):
    """*master* is where to post instead."""

    status = 409
    code = "chained"

    def __init__(self, feed: str, master: str, rule: str = "is a copy of") -> None:
        super().__init__(f"{rule} {master}: post there", field="feed", value=feed)
        self.master = master

    def body(self) -> dict[str, object]:
        return super().body() | {"master": self.master}


class Yielded(Chained):
    """Another feed goes on with the log: *master* is its address."""

    code = "yielded"

    def __init__(self, feed: str, master: str) -> None:
        super().__init__(feed, master, "is continued by")


class LogFellOff(Rejected):
    """*floor* is the first page that is in the log."""

    status = 410
    code = "log_fell_off"

    def __init__(self, after: int, floor: int) -> None:
        rule = f"the log begins with page {floor}: what lies between is gone"
        super().__init__(rule, field="after", value=after)
        self.floor = floor

    def body(self) -> dict[str, object]:
        return super().body() | {"floor": self.floor}


class InvalidPortion(Rejected):
    code = "invalid_portion"


class OtherLog(Rejected):
    status = 409
    code = "other_log"


class InvalidRelay(Rejected):
    code = "invalid_relay"


class NotChained(Rejected):
    status = 404
    code = "not_chained"


class UpstreamRefused(TidingsError):
    pass


class BrokenPortion(TidingsError):
    pass


class BrokenRelay(TidingsError):
    """Never taken for a new feed: that would copy everything again, in silence."""

    def __init__(self, feed: str, reason: str) -> None:
        self.feed = feed
        super().__init__(f"{feed}: what is stored of its relay cannot be read: {reason}")


class LeaseLost(TidingsError):
    def __init__(self, *, feed: str, follower: str, fence: int) -> None:
        self.feed, self.follower, self.fence = feed, follower, fence
        super().__init__(f"{feed}/{follower}: lease {fence} was taken over")


class FellOff(TidingsError):
    """Never skipped: the follower stands still and its function fails until it is repaired."""

    def __init__(self, *, feed: str, follower: str, checkpoint: int, floor: int) -> None:
        self.feed, self.follower, self.checkpoint, self.floor = feed, follower, checkpoint, floor
        super().__init__(f"{feed}/{follower}: stands at page {checkpoint}, floor is {floor}")


class PlanTooOld(Rejected):
    """Nothing more of it is applied; make a new plan."""

    status = 410
    code = "plan_too_old"

    def __init__(self, *, feed: str, through: int) -> None:
        self.feed, self.through = feed, through
        rule = (
            f"{feed}: the plan was made at page {through}; the log or the deletions since then "
            "are not all known any more, make a new plan"
        )
        super().__init__(rule, field="through", value=through)


class PlanMissing(TidingsError):
    """A mistake of ours."""


class LogIncomplete(TidingsError):
    """Nothing can be said of the state from this log."""

    def __init__(self, *, feed: str, page: int, checkpoint: int) -> None:
        self.feed, self.page, self.checkpoint = feed, page, checkpoint
        super().__init__(
            f"{feed}: the log cannot be read beyond page {page:,}, and the state has handled it"
            f" up to page {checkpoint:,}"
        )


class BrokenPart(TidingsError):
    """Somebody wrote what we did not; nothing of the part is used."""

    def __init__(self, rule: str, *, value: str = "") -> None:
        self.value = value
        super().__init__(f"{rule}: {value[:_VALUE_CHARS_MAX]!r}" if value else rule)


class Unavailable(TidingsError):
    """The weather's fault: nobody knows whether the write happened; a retry is safe."""
