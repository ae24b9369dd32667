"""Write to an index of OpenSearch or Elasticsearch, one document for each object."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from opensearchpy import (
    AuthorizationException,
    JSONSerializer,
    NotFoundError,
    OpenSearch,
    OpenSearchException,
    SerializationError,
    helpers,
)

from tidings.client.errors import Unwritten
from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import SLOT_BITS, blame_message, object_of, version_of, write_parts
from tidings.pipelines.documents import to_text
from tidings.pipelines.messages import Busy, Message, Verdict, WrongPipeline
from tidings.pipelines.ownership import OwnedStore, Target
from tidings.pipelines.refusals import of_code

EMPTY_BATCH = 1000  # documents that one request deletes; only their ids are sent
ANSWER_S = 60  # a bulk request that takes longer fails, and its batch is retried
COUNT_S = 3600  # the limit of a count, which reads the whole index
# The time between two counts under load. A count changes the cluster's state, which takes longer
# than a small batch.
COUNT_EVERY_S = 5
EMPTY_ROUNDS = 5  # attempts to empty an index; one is enough if no other program writes to it
# The server measures the age of a deletion with a clock that advances every 200 ms.
FORGET_S = 0.5
_GC = "index.gc_deletes"
_NOW = "0s"
_CONFLICT, _BELOW_ERRORS = 409, 300
_NAMESPACE = "{namespace}"
# The name of one index. The servers accept more names, but no other characters of a pattern.
_INDEX = re.compile(r"""[^\s_+\-*?,<>|\\/":#][^\s*?,<>|\\/":#]{0,254}""")
_FIELD, _WRITTEN = "tidings", "tidings_written"  # the mark and the number of batches in `_meta`
SAMPLE = 1000  # documents that are compared with those of a store; an answer has at most 10,000


class _Serializer(JSONSerializer):
    """A serializer that keeps all digits of numbers."""

    def dumps(self, data: Any) -> Any:
        if isinstance(data, str | bytes):
            return data
        try:
            return to_text(data, default=self.default, ensure_ascii=False)
        except (ValueError, TypeError) as error:
            raise SerializationError(data, error) from error


class Search(OwnedStore):
    """A sink that keeps *index* at *url* equal to the objects of the feed.

    `{namespace}` in *index* is replaced by the type of the object in lower case. Each index is
    marked with its consumer in `_meta` (`ownership`), and only marked ones are emptied. A batch
    without a reset is one bulk request. The version of a document is the position of its event in
    the log. So a repeated or late message changes nothing, whichever worker sends it. *auth* is the
    `http_auth` of opensearch-py: a name and a password, a signer for Amazon's service, or a
    function that returns headers, for example for an API key of Elasticsearch.

    Raises:
        WrongPipeline: *url* is not an address, or *index* is not the name of one index.
    """

    def __init__(self, url: str, index: str = "objects", *, auth: Any = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise WrongPipeline("url must begin with http or https, and have a host")
        if not _INDEX.fullmatch(index.replace(_NAMESPACE, "a")):
            raise WrongPipeline(f"index must be given, as the name of one index; not {index!r}")
        self._url, self._index, self._auth = url, index, auth
        self._shown = f"{parts.hostname}{parts.path.rstrip('/')}"
        self._client: OpenSearch | None = None
        self._unmarked: set[str] = set()  # indices without a mark, because rights are missing
        self._meta: dict[str, Any] = {}  # that of the only index, before the batch
        self._is_counted, self._counted_s = True, 0.0  # when the count was last written

    def open(self, consumer: str) -> None:
        self._own(consumer)
        self._unmarked.clear()
        self.written = self._owner.written  # it is not counted with `{namespace}`
        self._connect()
        # This fails now, not with the first batch, if the address or the password is wrong.
        self._refresh(self._pattern)
        if self._owner.feed and self._is_one:
            self._claim_index(self._index)

    def inspect(self) -> Target | None:
        self._connect()
        return self._target(self._index) if self._is_one else None

    def count(self) -> int | None:
        """Count the documents; return None if an index has no mark, because it may be another's."""
        if self._unmarked:
            return None
        self._refresh(self._pattern)
        return sum(self._count(index) for index in self._marked_indices())

    def _connect(self) -> None:
        auth = {"http_auth": self._auth} if self._auth else {}
        self._client = OpenSearch(
            self._url, timeout=ANSWER_S, max_retries=0, serializer=_Serializer(), **auth
        )

    def write(self, messages: list[Message], fence: int) -> None:
        """Write the messages.

        Raises:
            Unwritten: the message at the error's *index* was rejected. The messages before it are
                written.
            Busy: the server did not accept a message, although the message may be valid.
            NotOurs: an index belongs to another consumer, or has documents of an unknown origin.
        """
        wanted = {self._index_of(each) for each in messages if self._is_one or not each.is_command}
        for index in sorted(wanted):
            if _INDEX.fullmatch(index):  # the server refuses messages for all other names
                self._claim_index(index)
        if time.monotonic() > self._counted_s + COUNT_EVERY_S:
            self.count_batches()
        self._is_counted = False
        with blame_message(messages):  # a proxy may refuse the whole request
            write_parts(messages, self._put, self._empty)

    def count_batches(self) -> None:
        """Count the batches since the last call as one, in the only index."""
        if self._is_counted or not (self._owner.feed and self._is_one):
            return
        assert self._client is not None
        meta = self._meta | {_WRITTEN: self.written + 1}
        with suppress(OpenSearchException):  # the right was only there for the mark, or it is away
            self._client.indices.put_mapping(
                index=self._index, body={"_meta": meta}, request_timeout=COUNT_EVERY_S
            )
            self.written += 1
            self._owner = replace(self._owner, written=self.written)
            self._is_counted, self._counted_s = True, time.monotonic()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [Dataset(datasets.server(self._url), self._index)]

    def __str__(self) -> str:
        return f"index {self._index} at {self._shown}"

    def _put(self, messages: Sequence[Message], first: int) -> None:
        if not messages:
            return
        lines = [line for message in messages for line in self._lines(message)]
        for at, result in enumerate(self._bulk(lines, len(messages))):
            # After a conflict, the index has a later version: the message is late or repeated.
            if _is_failure(result) and result["status"] != _CONFLICT:
                means = _verdict(result)
                if means is Verdict.MESSAGE:
                    raise Unwritten(first + at, _reason(result))
                raise Busy(_reason(result), means)

    def _bulk(self, lines: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
        """Send *count* actions, and return the result of each."""
        assert self._client is not None
        items = self._client.bulk(body=lines)["items"]
        results = [result for item in items for result in item.values()]
        if len(results) != count:
            raise Busy(f"{self}: the answer has {len(results)} results for {count} actions")
        return results

    def _lines(self, message: Message) -> list[dict[str, Any]]:
        where = {
            "_index": self._index_of(message),
            "_id": object_of(message),
            "version": version_of(message.id),
            "version_type": "external_gte",
        }
        if message.is_gone:
            return [{"delete": where}]
        return [{"index": where}, message.data]

    def _empty(self) -> None:
        """Delete every document in the indices of this store, and the versions of all documents."""
        for index in list(self._marked_indices()):
            for _ in range(EMPTY_ROUNDS):
                self._refresh(index)
                if not self._delete_all(index):
                    break
            else:
                raise Busy(f"{self}: {index} is not empty after {EMPTY_ROUNDS} attempts")
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
                    raise Busy(f"{self} is not emptied: {_reason(result)}", _verdict(result))
        return is_found

    def _forget(self, index: str) -> None:
        """Make the server forget the versions of deleted documents, which it keeps for a minute.

        The log of a new feed has lower positions than an earlier feed, so the server would reject
        its documents as outdated.
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
            raise Busy(f"{self} cannot be emptied: {rule}", Verdict.ALL) from None

    def _refresh(self, index: str) -> None:
        """Make all earlier writes to *index* searchable."""
        assert self._client is not None
        self._client.indices.refresh(index=index, params={"ignore_unavailable": "true"})

    @property
    def _is_one(self) -> bool:
        """Return True if the index does not depend on the messages."""
        return _NAMESPACE not in self._index

    @property
    def _pattern(self) -> str:
        return self._index.replace(_NAMESPACE, "*")

    def _index_of(self, message: Message) -> str:
        return self._index.replace(_NAMESPACE, message.namespace.lower())

    def _marked_indices(self) -> Iterator[str]:
        """Yield the indices that have the mark of this store now, or that cannot have a mark."""
        for name, meta in self._metas(self._pattern).items():
            if str(meta.get(_FIELD, "")) == self._owner.mark:
                yield name
        yield from (each for each in self._unmarked if _are_positions(self._sample(each)))

    def _metas(self, pattern: str) -> dict[str, dict[str, Any]]:
        assert self._client is not None
        params = {"ignore_unavailable": "true", "filter_path": "*.mappings._meta"}
        try:
            found = self._client.indices.get_mapping(index=pattern, params=params)
        except (AuthorizationException, NotFoundError):
            return {}
        return {name: each["mappings"]["_meta"] for name, each in found.items()}

    def _claim_index(self, index: str) -> None:
        """Mark *index*, which is created if it is missing."""
        if index in self._unmarked:
            return
        metas = self._metas(index).values()
        meta = {key: each for found in metas for key, each in found.items()}
        self._meta, written = meta, self._counted(meta)
        is_ours = {found.get(_FIELD) for found in metas} == {self._owner.mark}
        if is_ours and written >= self._owner.written:
            self.written = written
            return
        assert self._client is not None
        self._claim(self._target(index))
        self._owner = replace(self._owner, adopt=None)  # it applies once
        meta |= {_FIELD: self._owner.mark, **({_WRITTEN: self.written} if self._is_one else {})}
        mapping = {"_meta": meta}
        try:
            if self._client.indices.exists(index):
                self._client.indices.put_mapping(index=index, body=mapping)
            else:
                self._client.indices.create(index, body={"mappings": mapping})
        except AuthorizationException:
            self._unmarked.add(index)

    def _target(self, index: str) -> Target:
        found = self._sample(index)
        meta = next(iter(self._metas(index).values()), {})
        return Target(
            f"index {index} at {self._shown}",
            str(meta.get(_FIELD, "")),
            not found,
            # With `{namespace}`, each new type has a new index.
            self._owner.is_known and (bool(found) or not self._is_one) and _are_positions(found),
            lambda: self._count(index),
            self._counted(meta),
        )

    def _counted(self, meta: dict[str, Any]) -> int:
        return int(meta.get(_WRITTEN, 0)) if self._is_one else self._owner.written

    def _count(self, index: str) -> int:
        """Count the documents of *index*, without the cluster's limit of a search, or fail."""
        assert self._client is not None
        params = {"track_total_hits": "true", "allow_partial_search_results": "false"}
        found = self._client.search(
            index=index, size=0, params={**params, "timeout": "-1"}, request_timeout=COUNT_S
        )
        return int(found["hits"]["total"]["value"])

    def _sample(self, index: str) -> list[dict[str, Any]]:
        """Return some documents of *index* with their versions; none if the index is missing."""
        assert self._client is not None
        self._refresh(index)
        params = {"ignore_unavailable": "true", "version": "true", "_source": "false"}
        answer = self._client.search(index=index, size=SAMPLE, params=params)
        return list(answer["hits"]["hits"])


def _are_positions(documents: list[dict[str, Any]]) -> bool:
    """Return True if the versions of *documents* are positions in a log.

    The server's own versions count the writes of a document from 1.
    """
    return all(each["_version"] >= 1 << SLOT_BITS for each in documents)


def _as_it_is(document: dict[str, Any]) -> dict[str, Any]:
    """Return the action that deletes a document and keeps its version.

    A delete by query would increase the version. Until `_forget`, the index would then reject
    writes of the object.
    """
    named = {name: document[name] for name in ("_index", "_id")}
    return {**named, "version": document["_version"], "version_type": "external_gte"}


def _is_failure(result: dict[str, Any]) -> bool:
    """Return True if the server did not execute the action.

    A document that is deleted, but does not exist, has the status 404 without an error.
    """
    return "error" in result or (
        result["status"] >= _BELOW_ERRORS and result.get("result") != "not_found"
    )


def _verdict(result: dict[str, Any]) -> Verdict:
    error = result.get("error")
    kind = error.get("type", "") if isinstance(error, dict) else ""
    return of_code("OpenSearch", f"{result['status']}/{kind}", result["status"])


def _reason(result: dict[str, Any]) -> str:
    error = result.get("error", {})
    if not isinstance(error, dict):
        return f"{result['status']}: {error}"
    cause = error.get("caused_by", {}).get("reason", "")
    reasons = ": ".join(part for part in (error.get("reason", ""), cause) if part)
    return f"{result['status']} {error.get('type', '')}: {reasons}"
