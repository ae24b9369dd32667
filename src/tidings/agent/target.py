"""The feed that batches are posted to, and what its answers mean for the queue."""

from __future__ import annotations

from tidings.agent.batches import Batch
from tidings.client.address import operations_url
from tidings.client.errors import Lost, Refused
from tidings.client.retry_policy import error_of_answer
from tidings.client.transport import connection
from tidings.core.errors import InvalidOperation, KeyReused, TooLarge

_CONTENT = {InvalidOperation.code, TooLarge.code}


class Unfit(Exception):
    """The feed refuses what is in the batch, and will again; nothing was appended."""


class KeyTaken(Exception):
    """The batch's key is another request's."""


class Target:
    """A connection kept open between batches."""

    def __init__(self, url: str, feed: str, password: str) -> None:
        self.url = operations_url(url, feed)
        self._client = connection.opened(password)

    def post(self, batch: Batch) -> None:
        """
        Append *batch*, once however often it is sent.

        Raises:
            Unfit: its content is refused.
            KeyTaken: it needs another key.
            Refused: for a reason outside of the batch: the password, the address, the feed.
            Lost: no answer, or one that says to try again.
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
    """Only a feed's own codes speak of the content; another server's 400 says nothing of it."""
    if isinstance(error, Refused) and error.code in _CONTENT:
        return Unfit(error.message)
    if isinstance(error, Refused) and error.code == KeyReused.code:
        return KeyTaken(error.message)
    return error
