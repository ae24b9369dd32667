"""The feed that batches are posted to, and the meaning of its answers for the queue."""

from __future__ import annotations

from tidings.agent.batches import Batch
from tidings.client.address import operations_url
from tidings.client.errors import Refused, WrongAnswer
from tidings.client.feed_api import NDJSON, FeedApi
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
        self._api = FeedApi(url, feed, password=password)

    def post(self, batch: Batch) -> None:
        """
        Append *batch*, only once even if it is sent repeatedly.

        Raises:
            Unfit: its content is refused.
            KeyTaken: it needs another key.
            Refused: a reason outside of the batch: the password, the address, the feed.
            Lost: no answer, or one that allows another attempt.
        """
        headers = {"Content-Type": NDJSON, "Idempotency-Key": batch.key}
        try:
            answer = self._api.request("POST", "ops", content=batch.body, headers=headers)
        except Refused as error:
            # Only codes of a feed refer to content; a proxy's 400 does not.
            if error.code in _CONTENT:
                raise Unfit(error.message) from None
            if error.code == KeyReused.code:
                raise KeyTaken(error.message) from None
            raise
        if answer.status_code != 204:
            raise WrongAnswer
