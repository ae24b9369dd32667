"""Write to an index of OpenSearch or Elasticsearch, one document for each object."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from opensearchpy import (
    AuthorizationException,
    JSONSerializer,
    OpenSearch,
    SerializationError,
    helpers,
)

from tidings.client.errors import Unwritten
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import object_of, version_of
from tidings.pipelines.documents import to_text
from tidings.pipelines.messages import Busy, Message, WrongPipeline

EMPTY_BATCH = 1000  # documents that one request deletes; only their ids are sent
ANSWER_S = 60  # a bulk request that takes longer fails, and its batch is retried
EMPTY_ROUNDS = 5  # attempts to empty an index; one is enough if no other program writes to it
# The server measures the age of a deletion with a clock that advances every 200 ms.
FORGET_S = 0.5
_GC = "index.gc_deletes"
_NOW = "0s"
_CONFLICT, _BELOW_ERRORS = 409, 300
# The statuses of errors that the message did not cause: the index is read-only or missing, or the
# server received too many requests.
_OF_SERVER = (403, 404, 429)
_SERVER_ERRORS = 500
_NAMESPACE = "{namespace}"


class _Serializer(JSONSerializer):
    """A serializer that keeps all digits of numbers."""

    def dumps(self, data: Any) -> Any:
        if isinstance(data, str | bytes):
            return data
        try:
            return to_text(data, default=self.default, ensure_ascii=False)
        except (ValueError, TypeError) as error:
            raise SerializationError(data, error) from error


class Search:
    """
    A sink that keeps *index* at *url* equal to the objects of the feed.

    `{namespace}` in *index* is replaced by the type of the object in lower case. A batch without a
    reset is one bulk request. The version of a document is the position of its event in the log. So
    a repeated or late message changes nothing, whichever worker sends it. *auth* is the `http_auth`
    of opensearch-py: a name and a password, a signer for Amazon's service, or a function that
    returns headers, for example for an API key of Elasticsearch.

    Raises:
        WrongPipeline: *url* is not an address, or *index* is empty.
    """

    def __init__(self, url: str, index: str = "objects", *, auth: Any = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise WrongPipeline("url must begin with http or https, and have a host")
        if not index:
            raise WrongPipeline("index must be given")
        self._url, self._index, self._auth = url, index, auth
        self._shown = f"{parts.hostname}{parts.path.rstrip('/')}"
        self._client: OpenSearch | None = None

    def open(self, consumer: str) -> None:
        auth = {"http_auth": self._auth} if self._auth else {}
        self._client = OpenSearch(
            self._url, timeout=ANSWER_S, max_retries=0, serializer=_Serializer(), **auth
        )
        # This fails now, not with the first batch, if the address or the password is wrong.
        self._refresh()

    def write(self, messages: list[Message], fence: int) -> None:
        """
        Write the messages.

        Raises:
            Unwritten: the message at the error's *index* was rejected. The messages before it are
                written.
            Busy: the server did not accept a message, although the message may be valid.
        """
        start = 0
        for at, message in enumerate(messages):
            if message.is_command:
                self._put(messages[start:at], start)
                self._empty()
                start = at + 1
        self._put(messages[start:], start)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [Dataset(datasets.server(self._url), self._index)]

    def __str__(self) -> str:
        return f"index {self._index} at {self._shown}"

    def _put(self, messages: list[Message], first: int) -> None:
        if not messages:
            return
        lines = [line for message in messages for line in self._lines(message)]
        for at, result in enumerate(self._bulk(lines, len(messages))):
            # After a conflict, the index has a later version: the message is late or repeated.
            if _is_failure(result) and result["status"] != _CONFLICT:
                if result["status"] in _OF_SERVER or result["status"] >= _SERVER_ERRORS:
                    raise Busy(_reason(result))
                raise Unwritten(first + at, _reason(result))

    def _bulk(self, lines: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
        """
        Send *count* actions, and return the result of each.

        Raises:
            Busy: the answer lacks results, so some actions may not have been executed.
        """
        assert self._client is not None
        items = self._client.bulk(body=lines)["items"]
        results = [result for item in items for result in item.values()]
        if len(results) != count:
            raise Busy(f"{self}: the answer has {len(results)} results for {count} actions")
        return results

    def _lines(self, message: Message) -> list[dict[str, Any]]:
        where = {
            "_index": self._index.replace(_NAMESPACE, message.namespace.lower()),
            "_id": object_of(message),
            "version": version_of(message.id),
            "version_type": "external_gte",
        }
        if message.is_gone:
            return [{"delete": where}]
        return [{"index": where}, message.data]

    def _empty(self) -> None:
        """
        Delete every document in the indices of this store, and the versions of all documents.

        Raises:
            Busy: the server refused a deletion, or another program writes to the index.
        """
        for _ in range(EMPTY_ROUNDS):
            index = self._refresh()
            if not self._delete_all(index):
                break
        else:
            raise Busy(f"{self}: it is not empty after {EMPTY_ROUNDS} attempts to empty it")
        self._forget(index)

    def _delete_all(self, index: str) -> bool:
        """Delete the documents that a search finds; return True if it found any."""
        is_found = False
        hits = helpers.scan(
            self._client, index=index, version=True, _source=False, ignore_unavailable=True
        )
        while documents := list(islice(hits, EMPTY_BATCH)):
            is_found = True
            lines = [{"delete": _as_it_is(document)} for document in documents]
            for result in self._bulk(lines, len(lines)):
                # After a conflict, the document was written again, and the next search finds it.
                if _is_failure(result) and result["status"] != _CONFLICT:
                    raise Busy(f"{self} is not emptied: {_reason(result)}")
        return is_found

    def _forget(self, index: str) -> None:
        """
        Make the server forget the versions of deleted documents, which it keeps for a minute.

        The log of a new feed has lower positions than an earlier feed, so the server would reject
        its documents as outdated.

        Raises:
            Busy: the user may not change the settings of the index.
        """
        assert self._client is not None
        indices, options = self._client.indices, {"ignore_unavailable": "true"}
        try:
            # All settings, because the answer leaves out an index without the setting.
            found = indices.get_settings(index=index, params={**options, "flat_settings": "true"})
            for name, each in found.items():
                kept = each["settings"].get(_GC)
                indices.put_settings(index=name, body={_GC: _NOW})
                time.sleep(FORGET_S)
                indices.refresh(index=name)
                # A setting of 0 s is left over from a worker that crashed here.
                indices.put_settings(index=name, body={_GC: None if kept == _NOW else kept})
        except AuthorizationException:
            rule = "the user must have the privilege `manage` (or `indices:admin/settings/*`)"
            raise Busy(f"{self} cannot be emptied: {rule}") from None

    def _refresh(self) -> str:
        """Make all earlier writes searchable; return the pattern for the indices of this store."""
        assert self._client is not None
        index = self._index.replace(_NAMESPACE, "*")
        self._client.indices.refresh(index=index, params={"ignore_unavailable": "true"})
        return index


def _as_it_is(document: dict[str, Any]) -> dict[str, Any]:
    """
    Return the action that deletes a document and keeps its version.

    A delete by query would increase the version. Until `_forget`, the index would then reject
    writes of the object.
    """
    named = {name: document[name] for name in ("_index", "_id")}
    return {**named, "version": document["_version"], "version_type": "external_gte"}


def _is_failure(result: dict[str, Any]) -> bool:
    """
    Return True if the server did not execute the action.

    A document that is deleted, but does not exist, has the status 404 without an error.
    """
    return "error" in result or (
        result["status"] >= _BELOW_ERRORS and result.get("result") != "not_found"
    )


def _reason(result: dict[str, Any]) -> str:
    error = result.get("error", {})
    if not isinstance(error, dict):
        return f"{result['status']}: {error}"
    cause = error.get("caused_by", {}).get("reason", "")
    reasons = ": ".join(part for part in (error.get("reason", ""), cause) if part)
    return f"{result['status']} {error.get('type', '')}: {reasons}"
