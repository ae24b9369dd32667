"""The feed that batches are posted to, and the meaning of its answers for the queue."""

from __future__ import annotations

from tidings.agent.batches import Batch
from tidings.client.address import operations_url
from tidings.client.errors import Lost, Refused
from tidings.client.retry_policy import error_of_answer
from tidings.client.transport import connection
from tidings.core.errors import InvalidOperation, KeyReused, TooLarge

_CONTENT = {InvalidOperation.code, TooLarge.code}


class Unfit(Exception):
    """The feed refuses the content of the batch for good; nothing was appended."""


class KeyTaken(Exception):
    """The key of the batch is used by another request."""


class Target:
    """A connection that is kept open between batches."""

    def __init__(self, url: str, feed: str, password: str) -> None:
        self.url = operations_url(url, feed)
        self._client = connection.opened(password)

    def post(self, batch: Batch) -> None:
        """
        Append *batch*, only once even if it is sent repeatedly.

        Raises:
            Unfit: its content is refused.
            KeyTaken: it needs another key.
            Refused: a reason outside of the batch: the password, the address, the feed.
            Lost: no answer, or one that allows another attempt.
        """
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": batch.key}
        with connection.translated(self.url):
            answer = self._client.post(self.url, content=batch.body, headers=headers)
        if answer.status_code == 204:
            return
        if answer.is_success:
            raise Lost("the answer is not one of a feed; is the address right?")
        raise _meaning(error_of_answer(answer))


def _meaning(error: Refused | Lost) -> Exception:
    """
    Return the error for the queue. Only codes of a feed refer to content; a proxy's 400 does not.
    """
    if isinstance(error, Refused) and error.code in _CONTENT:
        return Unfit(error.message)
    if isinstance(error, Refused) and error.code == KeyReused.code:
        return KeyTaken(error.message)
    return error
