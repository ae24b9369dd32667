"""Documents of operators as a process remembers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits

if TYPE_CHECKING:
    from tidings.core.changeagent.documents import OperatorDocument
    from tidings.core.changeagent.stores import OperatorDocuments
    from tidings.core.effects import Clock


class RecentDocuments:
    """Implements `OperatorDocuments`: another one's, remembered for `limits.DOCUMENT_AGE_MS`."""

    def __init__(self, operator_documents: OperatorDocuments, clock: Clock) -> None:
        self._operator_documents, self._clock = operator_documents, clock
        self._known: dict[tuple[str, str], tuple[int, OperatorDocument]] = {}

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        now = self._clock()
        read_at, known = self._known.get((feed, name), (0, None))
        if known is not None and 0 <= now - read_at < limits.DOCUMENT_AGE_MS:
            return known
        document = self._operator_documents.operator_document(feed, name)
        self._known[feed, name] = (now, document)
        return document

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        done = self._operator_documents.write(feed, name, operator_document)
        self._known.pop((feed, name), None)
        return done
