"""The errors of Tidings. `Rejected` is the base class of client errors."""

from __future__ import annotations


class TidingsError(Exception):
    """The base class of all errors of Tidings."""


class Rejected(TidingsError):
    """A client error. It names a field, the value of the field and the rule that was broken.

    `status` is the HTTP status of the response; `code` is stable and machine-readable.
    """

    status = 400
    code = "rejected"

    def __init_subclass__(cls, *, code: str, status: int = 0) -> None:
        cls.code, cls.status = code, status or cls.status

    def __init__(self, rule: str, *, field: str = "", value: object = None) -> None:
        self.rule, self.field, self.value = rule, field, value
        super().__init__(f"{field}: {rule}" if field else rule)

    def body(self) -> dict[str, object]:
        """Return the error as clients receive it.

        A long value is truncated to keep the response small. `value` is empty for an error that is
        not about a value, and for a value that is missing or null.
        """
        return {
            "code": self.code,
            "message": str(self),
            "field": self.field,
            "value": _format_value(self.value),
            "rule": self.rule,
        }


# The body of an error repeats this many characters of the invalid value, so that the client can
# find the value.
_VALUE_CHARS_MAX = 120


def _format_value(value: object) -> str:
    if value is None:
        return ""
    try:
        shown = repr(value)
    except ValueError:
        return "a number with too many digits"  # more than Python converts to text
    return shown if len(shown) <= _VALUE_CHARS_MAX else f"{shown[:_VALUE_CHARS_MAX]}..."


class InvalidOperation(Rejected, code="invalid_operation"):
    """A field breaks its rule."""


class InvalidFilter(Rejected, code="invalid_filter"):
    """`types`, `parents` or another filter parameter cannot be parsed."""


class InvalidCursor(Rejected, code="invalid_cursor"):
    """The text is not a cursor of any known kind."""


class InvalidFeed(Rejected, code="invalid_feed"):
    """The text is not a valid feed name."""


class InvalidKey(Rejected, code="invalid_idempotency_key"):
    """The text is not a valid Idempotency-Key."""


class InvalidMessage(Rejected, code="invalid_message"):
    """A WebSocket message breaks the protocol."""


class UnknownFeed(Rejected, code="unknown_feed", status=404):
    """This deployment has no such feed."""


class FeedDeleted(Rejected, code="feed_deleted", status=410):
    """The feed was deleted. An administrator of the host can create a new feed of that name."""

    def __init__(self, name: str) -> None:
        super().__init__("was deleted", field="feed", value=name)


class FeedExists(Rejected, code="feed_exists", status=412):
    """The feed exists, and the request may only create it."""


class FeedInUse(Rejected, code="feed_in_use", status=409):
    """A feed that has consumers, webhooks or a relay is deleted only with `force`."""


class TooLarge(Rejected, code="too_large", status=413):
    """The input exceeds a limit of the module `limits`."""


class WrongContentType(Rejected, code="wrong_content_type", status=415):
    """The body has an unsupported content type."""


class KeyReused(Rejected, code="idempotency_key_reused", status=422):
    """An Idempotency-Key was used again with another body."""


class OutOfTurn(Rejected, code="out_of_turn", status=409):
    """The state of the WebSocket does not allow this message, for example before it subscribes."""


class LeaveNotKept(Rejected, code="leave_not_kept"):
    """The feed does not store removed parents, which `leave=true` needs."""


class NoPasswordSet(Rejected, code="no_password_set", status=401):
    """The feed is closed until its owner sets a password."""


class WrongPassword(Rejected, code="wrong_password", status=401):
    """The password is missing or is not one of the feed's passwords for this role."""


class WrongKey(Rejected, code="wrong_key", status=401):
    """The feed has no such key, or the key has ended."""


class OutsideKey(Rejected, code="outside_key", status=403):
    """The key does not permit the request. *rule* must not reveal the requested data."""

    def __init__(self, rule: str, *, field: str = "key") -> None:
        super().__init__(rule, field=field)


class TooManyRequests(Rejected, code="too_many_requests", status=429):
    """A limit is reached: the rate or the open streams of a key, or the failed attempts on a feed.

    The client may try again after *retry_after_s* seconds.
    """

    def __init__(self, rule: str, *, retry_after_s: int, field: str = "key") -> None:
        super().__init__(rule, field=field)
        self.retry_after_s = retry_after_s


class KeyEnded(Rejected, code="key_ended", status=401):
    """The key of a connection has ended.

    The client receives this error before the connection is closed.
    """


class InvalidSetting(Rejected, code="invalid_setting"):
    """A setting of a feed breaks its rule."""


class InvalidItem(Rejected, code="invalid_item"):
    """A published item is not an item of a declared resource."""


class InvalidRegistration(Rejected, code="invalid_registration"):
    """The registration of a listener, which is a client of Triton's protocol, is invalid.

    The listener receives the text of the error, without a code. Then the connection is closed.
    """


class InvalidSync(Rejected, code="invalid_sync"):
    """A request for a sync breaks a rule."""


class InvalidChange(Rejected, code="invalid_change"):
    """A posted change or a request for changes breaks a rule."""


class UnknownChange(Rejected, code="unknown_change", status=404):
    """The log has no such change."""


class BelowFloor(Rejected, code="below_floor", status=410):
    """A strict request asks for changes that the log no longer has.

    *floor* is the lowest valid value for `since`: the log still has all changes after *floor*.
    """

    def __init__(self, since: int, floor: int, rule: str = "") -> None:
        rule = rule or f"is below the floor {floor}: the entries up to the floor were removed"
        super().__init__(rule, field="since", value=since)
        self.floor = floor


class RefusedByHook(Rejected, code="refused_by_hook"):
    """A webhook rejected a change.

    *broken* is True if a webhook failed without an answer of status 4xx; the status is then 502
    instead of 400.
    """

    def __init__(self, failures: str, *, broken: bool) -> None:
        super().__init__(failures)
        self.status = 502 if broken else 400


class WrongUser(Rejected, code="wrong_user", status=401):
    """The feed has no user with this name and password."""


class InvalidConsumer(Rejected, code="invalid_consumer"):
    """A request about a named consumer breaks a rule."""


class ConsumerExists(Rejected, code="consumer_exists", status=412):
    """The request would create a consumer, which exists already."""


class UnknownKey(Rejected, code="unknown_key", status=404):
    """The feed has no key with that id."""


class UnknownConsumer(Rejected, code="unknown_consumer", status=404):
    """The feed has no named consumer of that name."""


class UnknownParked(Rejected, code="unknown_parked", status=404):
    """No message with that id is parked, which means set aside for an operator."""


class ConsumerHeld(Rejected, code="consumer_held", status=409):
    """Another worker holds the consumer."""


class FenceLost(Rejected, code="fence_lost", status=409):
    """The worker in the request no longer holds the consumer."""


class NothingDone(Rejected, code="nothing_done", status=409):
    """An operator's request would change nothing."""


class IncompleteCopy(Rejected, code="not_whole", status=409):
    """A chained feed may lack pages of its upstream, and no reason was given to promote it."""


class ConsumerFellOff(Rejected, code="fell_off", status=410):
    """The log no longer reaches back to the position of a named consumer."""


class Chained(Rejected, code="chained", status=409):
    """The feed is a copy of another feed; *master* is the address to post to."""

    def __init__(self, feed: str, master: str, rule: str = "is a copy of") -> None:
        super().__init__(f"{rule} {master}: post there", field="feed", value=feed)
        self.master = master

    def body(self) -> dict[str, object]:
        return super().body() | {"master": self.master}


class Yielded(Chained, code="yielded"):
    """Another feed continues the log; *master* is its address."""

    def __init__(self, feed: str, master: str) -> None:
        super().__init__(feed, master, "is continued by")


class LogFellOff(Rejected, code="log_fell_off", status=410):
    """The log of an upstream does not reach the position *after* of the feed that copies it.

    *floor* is the first page that is in the log.
    """

    def __init__(self, after: int, floor: int) -> None:
        rule = f"the log begins with page {floor}; earlier pages were removed"
        super().__init__(rule, field="after", value=after)
        self.floor = floor

    def body(self) -> dict[str, object]:
        return super().body() | {"floor": self.floor}


class InvalidPagesRequest(Rejected, code="invalid_portion"):
    """A request for pages or rows, as the relay of a chained feed sends it, breaks a rule."""


class OtherLog(Rejected, code="other_log", status=409):
    """The feed that requests pages has a page that is not a page of this log."""


class InvalidRelay(Rejected, code="invalid_relay"):
    """An operator's request about a chained feed breaks a rule."""


class NotChained(Rejected, code="not_chained", status=404):
    """The feed is not a chained feed."""


class UpstreamRefused(TidingsError):
    """The upstream refuses the requests of this feed, for example because of its password."""


class BrokenBatch(TidingsError):
    """A response of the upstream cannot be parsed."""


class BrokenRelay(TidingsError):
    """The relay document of a chained feed cannot be read.

    The feed must not be treated as a new feed, because it would silently copy everything again.
    """

    def __init__(self, feed: str, reason: str) -> None:
        super().__init__(f"{feed}: the stored relay cannot be read: {reason}")


class LeaseLost(TidingsError):
    """Another process took over the lease; the caller must stop and write nothing more."""

    def __init__(self, *, feed: str, follower: str, fence: int) -> None:
        super().__init__(f"{feed}/{follower}: lease {fence} was taken over")


class FellOff(TidingsError):
    """The log no longer contains the next page that a follower needs.

    The follower never skips the page. All runs of the follower fail until an operator repairs the
    feed.
    """

    def __init__(self, *, feed: str, follower: str, checkpoint: int, floor: int) -> None:
        super().__init__(
            f"{feed}/{follower}: is at page {checkpoint}, but the log begins with page {floor}"
        )


class PlanTooOld(Rejected, code="plan_too_old", status=410):
    """The plan is so old that changes made after it can no longer be detected.

    The remaining corrections are not applied.
    """

    def __init__(self, *, feed: str, through: int) -> None:
        rule = (
            f"{feed}: the plan was made at page {through}; the log no longer has all changes or "
            "deletions since then, so make a new plan"
        )
        super().__init__(rule, field="through", value=through)


class PlanMissing(TidingsError):
    """The job of a sync succeeded but left no plan, which is a bug."""


class LogIncomplete(TidingsError):
    """The log lost a page, so the state cannot be derived from the log."""

    def __init__(self, *, feed: str, page: int, checkpoint: int, head: int) -> None:
        super().__init__(
            f"{feed}: page {page + 1} is missing (head {head}): the log cannot be read beyond page"
            f" {page:,}, and the state has handled it up to page {checkpoint:,}; see"
            " docs/operations/RUNBOOKS.md, Pages are lost"
        )


class BrokenPart(TidingsError):
    """A part of the archive is truncated, or was not written by Tidings; all of it is ignored."""

    def __init__(self, rule: str, *, value: str = "") -> None:
        super().__init__(f"{rule}: {value[:_VALUE_CHARS_MAX]!r}" if value else rule)


class Unavailable(TidingsError):
    """A store or another service did not answer in time.

    The service may have done the write that was requested. Repeating the request is safe.
    """

    code = "unavailable"


DISK_FULL, STORAGE_DAMAGED = "disk_full", "storage_damaged"
STORAGE_MOVED, STORAGE_READ_ONLY = "storage_moved", "storage_read_only"
STORAGE_FAILED = "storage_failed"
# The codes of `StorageFailed`, each with its problem and an operator's action.
STORAGE_PROBLEMS = {
    DISK_FULL: "the disk is full; free some space",
    STORAGE_MOVED: "moved, removed, replaced or truncated while in use; put the same file back",
    STORAGE_READ_ONLY: "the file or its folder is read-only; check owner, mode and mount",
    STORAGE_DAMAGED: "the file is damaged; restore a backup",
    STORAGE_FAILED: "the disk reports an error",
}


class StorageFailed(Unavailable):
    """The storage of a server has a problem that an operator has to solve.

    *code* is one of `STORAGE_PROBLEMS`. Clients receive the message, so *place* is no path.
    """

    def __init__(self, code: str, storage: str, reason: str = "") -> None:
        super().__init__(f"{storage}: {STORAGE_PROBLEMS[code]}{reason and f' ({reason})'}")
        self.code = code


def parse_integer(text: str, least: int, most: int) -> int:
    """Parse *text*, which must be decimal digits, as an integer from *least* to *most*.

    *least* and *most* are 0 or positive.

    Raises:
        ValueError: *text* is not such a number. The text of the error is the rule.
    """
    digits = text.isascii() and text.isdigit()
    if digits and len(text) <= len(str(most)) and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"must be a whole number from {least} to {most}")


def parse_field(text: str, field: str, least: int, most: int, wrong: type[Rejected]) -> int:
    """Return *text*, the value of the request field *field*, as an integer; see `parse_integer`.

    Raises:
        *wrong*: *text* is not such a number. The error names the field, the value and the rule.
    """
    try:
        return parse_integer(text, least, most)
    except ValueError as error:
        raise wrong(str(error), field=field, value=text) from None
