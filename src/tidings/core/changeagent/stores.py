"""The stores of `changeagent`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.changeagent.documents import OperatorDocument
    from tidings.core.changeagent.tag_index import Summary
    from tidings.core.changeagent.webhooks import Hook, Verdict


class TagStore(Protocol):
    """Which tags are not on which pages."""

    def write(self, feed: str, summaries: Sequence[Summary]) -> None:
        """Put *summaries*; one that ends at the same page is replaced."""

    def read(self, feed: str, after: int, limit: int) -> list[Summary]:
        """
        Those that end above page *after*, ascending, at most *limit* or some 1 MB.

        Need not see what was written a moment ago; the expiry is left out (0).
        """

    def last(self, feed: str) -> int:
        """The last page that is summed up; 0 before the first."""


class OperatorDocuments(Protocol):
    """What operators write down: texts by feed and name."""

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        """Strongly consistent; an empty one where nothing was ever written."""

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        """
        Replace its text if `operator_document.version` is still there; False when it is not.

        What is stored has `operator_document.version + 1`. Two who change at once cannot undo
        each other.
        """


class AskHooks(Protocol):
    """Send a change's data, as JSON, to all *hooks* at once; what each said, in their order."""

    def __call__(self, hooks: Sequence[Hook], data: str) -> Sequence[Verdict]: ...


class CheckBcrypt(Protocol):
    """Whether *password*, 72 bytes at most, is behind the bcrypt hash *stored*."""

    def __call__(self, password: bytes, stored: bytes) -> bool: ...
