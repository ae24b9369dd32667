"""Documents of operators as a process remembers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.settings.profiles import Recent

if TYPE_CHECKING:
    from tidings.core.changeagent.documents import OperatorDocument
    from tidings.core.changeagent.stores import OperatorDocuments
    from tidings.core.effects import Clock


class RecentDocuments:
    """
    Implements `OperatorDocuments`: another one's, remembered for `limits.DOCUMENT_AGE_MS`.

    What this process writes counts at once; `forget` is for what it stores by another way.
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
        """Read the document again the next time."""
        self._recent.forget((feed, name))

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        try:
            return self._operator_documents.write(feed, name, operator_document)
        finally:  # also after a failure, which may be that of the answer alone
            self.forget(feed, name)
