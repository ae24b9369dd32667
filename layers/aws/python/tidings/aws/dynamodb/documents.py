"""What operators have written down, on DynamoDB in the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.aws.dynamodb.items import document as operator_documents
from tidings.aws.dynamodb.transport.conditional_writes import put_over
from tidings.aws.runtime.aws_errors import translated
from tidings.core.changeagent.documents import OperatorDocument

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDBOperatorDocuments:
    """Implements `OperatorDocuments`."""

    def __init__(self, client: DynamoDBClient, table: str) -> None:
        self._client, self._table = client, table

    def operator_document(self, feed: str, name: str) -> OperatorDocument:
        with translated():
            answer = self._client.get_item(
                TableName=self._table, Key=operator_documents.key(feed, name), ConsistentRead=True
            )
        return operator_documents.decode(answer.get("Item", {}))

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        item = operator_documents.encode(
            feed, name, OperatorDocument(operator_document.text, operator_document.version + 1)
        )
        new = operator_document.version == 0
        return put_over(self._client, self._table, item, operator_document.version, may_be_new=new)
