"""What operators have written down, on DynamoDB in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import document as operator_documents
from tidings.aws.dynamodb.transport.table import Table
from tidings.core.changeagent.documents import OperatorDocument

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBOperatorDocuments:
    """Implements `OperatorDocuments`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._table = Table(client, table)

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        return operator_documents.decode(self._table.get(operator_documents.key(feed, name)) or {})

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        version = operator_document.version
        stored = OperatorDocument(operator_document.text, version + 1)
        item = operator_documents.encode(feed, name, stored)
        return self._table.put_over(item, version, may_be_new=version == 0)
