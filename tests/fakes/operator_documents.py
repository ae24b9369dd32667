"""The sheets of feeds, by name."""

from __future__ import annotations

from threading import Lock

from tidings.core.changeagent.documents import OperatorDocument


class MemoryOperatorDocuments:
    """Implements `OperatorDocuments`."""

    def __init__(self) -> None:
        self._operator_documents: dict[tuple[str, str], OperatorDocument] = {}
        self._lock = Lock()

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        with self._lock:
            return self._operator_documents.get((feed, name), OperatorDocument())

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        with self._lock:
            standing = self._operator_documents.get((feed, name), OperatorDocument())
            if standing.version != operator_document.version:
                return False
            self._operator_documents[feed, name] = OperatorDocument(
                operator_document.text, operator_document.version + 1
            )
            return True
