"""Every error the feed raises. A `Rejected` is the client's fault; nothing was written then."""

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

    def __init_subclass__(cls, *, code: str, status: int = 0) -> None:
        cls.code, cls.status = code, status or cls.status

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


class InvalidOperation(Rejected, code="invalid_operation"):
    """A field breaks its rule."""


class InvalidFilter(Rejected, code="invalid_filter"):
    """`types` or `parents` cannot be read."""


class InvalidCursor(Rejected, code="invalid_cursor"):
    """Not a cursor of any kind we know."""


class InvalidFeed(Rejected, code="invalid_feed"):
    """Not a feed name."""


class InvalidKey(Rejected, code="invalid_idempotency_key"):
    """Not an Idempotency-Key."""


class InvalidMessage(Rejected, code="invalid_message"):
    """A WebSocket message breaks the protocol."""


class UnknownFeed(Rejected, code="unknown_feed", status=404):
    """No such feed here."""


class TooLarge(Rejected, code="too_large", status=413):
    """A limit of `limits` is passed."""


class WrongContentType(Rejected, code="wrong_content_type", status=415):
    """A body in a format we do not read."""


class KeyReused(Rejected, code="idempotency_key_reused", status=422):
    """An Idempotency-Key came back with another body."""


class OutOfTurn(Rejected, code="out_of_turn", status=409):
    """A WebSocket message the session's state does not allow."""


class LeaveNotKept(Rejected, code="leave_not_kept"):
    """The feed does not keep what `leave=true` needs."""


class NoPasswordSet(Rejected, code="no_password_set", status=401):
    """The feed is closed until its owner sets a password."""


class WrongPassword(Rejected, code="wrong_password", status=401):
    """Not the password of the feed for this role, or none."""


class WrongKey(Rejected, code="wrong_key", status=401):
    """Not a key of the feed, or one that has ended."""


class OutsideKey(Rejected, code="outside_key", status=403):
    """The key does not allow what is asked for; *rule* never tells what it was."""

    def __init__(self, rule: str, *, field: str = "key") -> None:
        super().__init__(rule, field=field)


class TooManyRequests(Rejected, code="too_many_requests", status=429):
    """The rate of the key is used up. *retry_after_s* is when the rate allows the next one."""

    def __init__(self, rule: str, *, retry_after_s: int) -> None:
        super().__init__(rule, field="key")
        self.retry_after_s = retry_after_s


class KeyEnded(Rejected, code="key_ended", status=401):
    """The key of a connection has ended; its client is told so before it is closed."""


class InvalidSetting(Rejected, code="invalid_setting"):
    """What is to be set for a feed breaks its rule."""


class InvalidItem(Rejected, code="invalid_item"):
    """What is to be published is no item of a declared resource."""


class InvalidRegistration(Rejected, code="invalid_registration"):
    """
    A listener cannot be registered with what it said.

    Its text, without a code, is told to the listener before the connection ends.
    """


class InvalidSync(Rejected, code="invalid_sync"):
    """A request for a sync breaks its rule."""


class InvalidChange(Rejected, code="invalid_change"):
    """What is posted as a change, or asked of changes, breaks its rule."""


class UnknownChange(Rejected, code="unknown_change", status=404):
    """No such change in the log."""


class BelowFloor(Rejected, code="below_floor", status=410):
    """
    The log does not reach back to where a strict reader stands.

    *floor* is what to ask `since` with instead: what is behind it is all still there.
    """

    def __init__(self, since: int, floor: int, rule: str = "") -> None:
        rule = rule or f"is below the floor {floor}: what was in between is gone"
        super().__init__(rule, field="since", value=since)
        self.floor = floor


class RefusedByHook(Rejected, code="refused_by_hook"):
    """
    A webhook did not accept a change.

    *status* 400: each one that failed answered with 4xx; 502: one of them is broken.
    """

    def __init__(self, failures: str, *, broken: bool) -> None:
        super().__init__(failures)
        self.status = 502 if broken else 400


class WrongUser(Rejected, code="wrong_user", status=401):
    """Not one of the users of the feed with their password."""


class InvalidConsumer(Rejected, code="invalid_consumer"):
    """What is said of a named consumer breaks its rule."""


class UnknownKey(Rejected, code="unknown_key", status=404):
    """The feed has no key of that id."""


class UnknownConsumer(Rejected, code="unknown_consumer", status=404):
    """No named consumer of that name."""


class UnknownParked(Rejected, code="unknown_parked", status=404):
    """No message of that id is parked."""


class ConsumerHeld(Rejected, code="consumer_held", status=409):
    """Another worker holds the consumer."""


class FenceLost(Rejected, code="fence_lost", status=409):
    """The worker that says so does not hold the consumer any more."""


class NothingDone(Rejected, code="nothing_done", status=409):
    """An operator asks for what would change nothing."""


class NotWhole(Rejected, code="not_whole", status=409):
    """A copy may lack pages, and cannot be promoted without a reason."""


class ConsumerFellOff(Rejected, code="fell_off", status=410):
    """The log does not reach back to where a consumer stands."""


class Chained(Rejected, code="chained", status=409):
    """The feed is a copy of another one: *master* is where to post instead."""

    def __init__(self, feed: str, master: str, rule: str = "is a copy of") -> None:
        super().__init__(f"{rule} {master}: post there", field="feed", value=feed)
        self.master = master

    def body(self) -> dict[str, object]:
        return super().body() | {"master": self.master}


class Yielded(Chained, code="yielded"):
    """Another feed goes on with the log: *master* is its address."""

    def __init__(self, feed: str, master: str) -> None:
        super().__init__(feed, master, "is continued by")


class LogFellOff(Rejected, code="log_fell_off", status=410):
    """The log does not reach back to where a chained feed stands; *floor* is its first page."""

    def __init__(self, after: int, floor: int) -> None:
        rule = f"the log begins with page {floor}: what lies between is gone"
        super().__init__(rule, field="after", value=after)
        self.floor = floor

    def body(self) -> dict[str, object]:
        return super().body() | {"floor": self.floor}


class InvalidPortion(Rejected, code="invalid_portion"):
    """What is asked of pages or rows breaks its rule."""


class OtherLog(Rejected, code="other_log", status=409):
    """A chained feed stands at a page that this log does not have."""


class InvalidRelay(Rejected, code="invalid_relay"):
    """What is asked of a chained feed breaks its rule."""


class NotChained(Rejected, code="not_chained", status=404):
    """The feed is local."""


class UpstreamRefused(TidingsError):
    """The feed that is copied does not let us read it."""


class BrokenPortion(TidingsError):
    """What came from the feed that is copied cannot be read."""


class BrokenRelay(TidingsError):
    """
    What is stored of a chained feed cannot be read.

    Never taken for a new feed: that would copy everything again, in silence.
    """

    def __init__(self, feed: str, reason: str) -> None:
        super().__init__(f"{feed}: what is stored of its relay cannot be read: {reason}")


class LeaseLost(TidingsError):
    """Another holder took over; stop, write nothing more."""

    def __init__(self, *, feed: str, follower: str, fence: int) -> None:
        super().__init__(f"{feed}/{follower}: lease {fence} was taken over")


class FellOff(TidingsError):
    """
    A follower's next page is no longer in the log.

    Never skipped: the follower stands still and its function fails until it is repaired.
    """

    def __init__(self, *, feed: str, follower: str, checkpoint: int, floor: int) -> None:
        super().__init__(f"{feed}/{follower}: stands at page {checkpoint}, floor is {floor}")


class PlanTooOld(Rejected, code="plan_too_old", status=410):
    """What moved since a plan was made is not known any more: nothing more of it is applied."""

    def __init__(self, *, feed: str, through: int) -> None:
        rule = (
            f"{feed}: the plan was made at page {through}; the log or the deletions since then "
            "are not all known any more, make a new plan"
        )
        super().__init__(rule, field="through", value=through)


class PlanMissing(TidingsError):
    """The job of a sync ended well and left no plan: a mistake of ours."""


class LogIncomplete(TidingsError):
    """The log lost a page, so that it says nothing of the state."""

    def __init__(self, *, feed: str, page: int, checkpoint: int, head: int) -> None:
        super().__init__(
            f"{feed}: page {page + 1} is missing (head {head}): the log cannot be read beyond page"
            f" {page:,}, and the state has handled it up to page {checkpoint:,}; see"
            " docs/operations/RUNBOOKS.md, Pages are lost"
        )


class BrokenPart(TidingsError):
    """A part of the archive was not written by us; nothing of it is used."""

    def __init__(self, rule: str, *, value: str = "") -> None:
        super().__init__(f"{rule}: {value[:_VALUE_CHARS_MAX]!r}" if value else rule)


class Unavailable(TidingsError):
    """A store did not answer in time. Nobody knows whether it wrote; a retry is safe."""
