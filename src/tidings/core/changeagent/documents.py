"""The documents that an operator sets for a feed or the deployment, such as users and health.

A change takes effect within seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.records import Kind, Layout, Records
from tidings.core.settings.profiles import Recent

if TYPE_CHECKING:
    from tidings.core.effects import Clock
    from tidings.core.records import RecordStore


CONFIGURATION, USERS, HEALTH = "configuration", "users", "health"
DEPLOYMENT = "-"  # used instead of the name of a feed, for documents of all feeds


@dataclass(frozen=True, slots=True)
class OperatorDocument:
    """A document; *text* is "" if it was never written. *version* detects concurrent updates."""

    text: str = field(default="", repr=False)
    version: int = 0


DOCUMENTS = Kind("operator-document", "sheet", is_due=True)
_LAYOUT = Layout(OperatorDocument)


class OperatorDocuments:
    """The store of the documents of operators, by feed and name."""

    def __init__(self, records: RecordStore) -> None:
        self._records = Records(records, DOCUMENTS, _LAYOUT)

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        """Return the document, which is empty if it was never written.

        The read is strongly consistent, except in `RecentDocuments`.
        """
        return self._records.get(feed, name) or OperatorDocument()

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        """Replace the text and return True if the stored version is `operator_document.version`.

        Otherwise change nothing and return False. The stored version becomes
        `operator_document.version + 1`, so that concurrent changes cannot undo each other.
        """
        return self._records.save(feed, operator_document, name)


class RecentDocuments(OperatorDocuments):
    """Cache the documents of another store.

    A document is cached for `limits.DOCUMENT_AGE_MS`. Writes through this object take effect at
    once. Call `forget` after any other write.
    """

    def __init__(self, operator_documents: OperatorDocuments, clock: Clock) -> None:
        self._operator_documents = operator_documents
        self._recent: Recent[tuple[str, str], OperatorDocument] = Recent(
            lambda place: operator_documents.operator_document(*place),
            lambda: limits.DOCUMENT_AGE_MS,
            clock,
        )

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        return self._recent.get((feed, name))

    def forget(self, feed: str, name: str) -> None:
        """Remove the document from the cache."""
        self._recent.forget((feed, name))

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        try:
            return self._operator_documents.write(feed, name, operator_document)
        finally:  # forget the document also after an error, because it may have been written
            self.forget(feed, name)
