"""What every store of operators' documents keeps to: `OperatorDocuments`."""

from __future__ import annotations

from tests.contract.stores import Stores
from tidings.core.changeagent.documents import DEPLOYMENT, HEALTH, USERS, OperatorDocument


class TestOperatorDocuments:
    def test_what_was_never_written_is_empty(self, stores: Stores, feed: str) -> None:
        """With the version that the first writer has to name."""
        assert stores.operator_documents.operator_document(feed, USERS) == OperatorDocument("", 0)

    def test_a_document_comes_back(self, stores: Stores, feed: str) -> None:
        """By its name, apart from other names and feeds; empty texts too."""
        assert stores.operator_documents.write(feed, USERS, OperatorDocument("a:b\n\u00e4", 0))
        assert stores.operator_documents.write(DEPLOYMENT, HEALTH, OperatorDocument("down", 0))
        assert stores.operator_documents.operator_document(feed, USERS) == OperatorDocument(
            "a:b\n\u00e4", 1
        )
        assert stores.operator_documents.operator_document(DEPLOYMENT, HEALTH) == OperatorDocument(
            "down", 1
        )
        assert (
            stores.operator_documents.operator_document(f"{feed}-other", USERS)
            == OperatorDocument()
        )
        assert stores.operator_documents.write(feed, USERS, OperatorDocument("", 1))
        assert stores.operator_documents.operator_document(feed, USERS) == OperatorDocument("", 2)
