"""Write to a hash of Redis or Valkey, one field for each object."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import redis

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import object_of, until_refused
from tidings.pipelines.documents import to_text
from tidings.pipelines.messages import Message, Overtaken, WrongPipeline
from tidings.pipelines.ownership import ADOPTED, OURS, OwnedStore, Target

_log = logging.getLogger(__name__)

PORT = 6379
ANSWER_S = 60  # a batch fails if the server takes longer than this
_SCHEMES = ("redis", "rediss", "unix")
_PUT, _DELETE, _EMPTY = "put", "delete", "empty"
# The fields of the writers with the mark and the number of batches. Consumers have a dot in their
# names.
_MARK, _WRITTEN = "owner", "written"

# A script that writes a batch. Redis runs a script atomically, so readers see a batch completely or
# not at all.
_WRITE = """
local objects, writers, writer, fence = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local latest = tonumber(redis.call('HGET', writers, writer) or 0)
if latest > fence then
    return latest
end
local mark = redis.call('HGET', writers, 'owner') or ''
local written = tonumber(redis.call('HGET', writers, 'written') or 0)
if mark ~= ARGV[3] or written < tonumber(ARGV[4]) then
    return {mark, written}
end
redis.call('HSET', writers, writer, fence, 'written', written + 1)
for at = 5, #ARGV, 3 do
    if ARGV[at] == 'put' then
        redis.call('HSET', objects, ARGV[at + 1], ARGV[at + 2])
    elseif ARGV[at] == 'delete' then
        redis.call('HDEL', objects, ARGV[at + 1])
    else
        redis.call('UNLINK', objects)
    end
end
return -written - 1
"""


class Redis(OwnedStore):
    """A sink that keeps the hash *key* at *url* equal to the objects of the feed.

    `HGET key type/id` returns the object as JSON. One script writes a batch. The hash `key:writers`
    has the fence of the last worker; after a later worker has written, an earlier worker can no
    longer write. Its fields `owner` and `written` are the mark of the hash and the number of
    batches (`ownership`). A reset empties the hash *key*. A written batch is on disk only if the
    server is configured with `appendonly yes` and `appendfsync always`. In Redis Cluster, *key*
    must have braces, as in `{objects}`, so that both keys are on one node, and *url* must be of
    this node.

    A server that evicts any key when its memory is full (`maxmemory-policy allkeys-...`) is
    refused. If the hash is already marked, a warning is logged instead.

    Raises:
        WrongPipeline: *url* is not a Redis address, or *key* is empty.
    """

    def __init__(self, url: str, key: str = "objects") -> None:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not (parts.hostname or parts.path):
            schemes = " or ".join(_SCHEMES)
            raise WrongPipeline(f"url must begin with {schemes}, and have a host or a path")
        if not key:
            raise WrongPipeline("key must be given")
        self._url, self._key, self._writers = url, key, f"{key}:writers"
        self._shown = f"{parts.hostname or ''}{parts.path}"
        self._client: redis.Redis | None = None
        self._script: Any = None

    def open(self, consumer: str) -> None:
        self._own(consumer)
        reason = self._claim(self.inspect())
        assert self._client is not None
        if evicts := _eviction_of(self._client):
            rule = "it would delete all objects when its memory is full"
            give = "set volatile-lru or noeviction"
            if reason != OURS:
                raise WrongPipeline(
                    f"{self}: the server has maxmemory-policy {evicts}; {rule}; {give}"
                )
            _log.warning("%s: the server has maxmemory-policy %s; %s; %s", self, evicts, rule, give)
        if reason == ADOPTED:
            # The fences of an earlier feed may be higher than those of this one.
            self._client.hdel(self._writers, consumer)
            self._client.hset(self._writers, _WRITTEN, self.written)
        if reason != OURS:
            self._client.hset(self._writers, _MARK, self._owner.mark)
        self._script = self._client.register_script(_WRITE)

    def inspect(self) -> Target:
        client = self._client = redis.Redis.from_url(self._url, socket_timeout=ANSWER_S)
        mark, written = cast("list[Any]", client.hmget(self._writers, [_MARK, _WRITTEN]))
        is_hash = client.type(self._key) == b"hash"
        return Target(
            str(self),
            (mark or b"").decode(),
            not client.exists(self._key),
            bool(client.hexists(self._writers, self._owner.consumer)),
            lambda: int(client.hlen(self._key) if is_hash else client.exists(self._key)),
            int(written or 0),
        )

    def count(self) -> int:
        assert self._client is not None
        found: Any = self._client.hlen(self._key)
        return int(found)

    def write(self, messages: list[Message], fence: int) -> None:
        """Write the messages with one call of the script.

        Raises:
            Unwritten: JSON cannot represent the message at the error's *index*. The messages before
                it are written.
            Overtaken: a later worker has written.
        """
        commands, refusal = until_refused(messages, _command)
        if commands:
            parts = [part for command in commands for part in command]
            args = [self._owner.consumer, fence, self._owner.mark, self.written, *parts]
            found = self._script(keys=[self._key, self._writers], args=args)
            if isinstance(found, list):
                self._verify(found[0].decode(), found[1])
            elif found > 0:
                rule = f"it has replaced worker {fence}"
                raise Overtaken(f"worker {found} writes {self._key}; {rule}")
            else:
                self.written = -found
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this store, for lineage."""
        return [Dataset(datasets.server(self._url, "redis", PORT), self._key)]

    def __str__(self) -> str:
        return f"hash {self._key} at {self._shown}"


def _eviction_of(client: redis.Redis) -> str:
    """Return the policy by which the server evicts keys without an expiry; "" if it evicts none."""
    with suppress(redis.ResponseError):  # the user may not see it
        memory: Any = client.info("memory")
        policy = str(memory.get("maxmemory_policy", ""))
        return policy if memory.get("maxmemory") and policy.startswith("allkeys") else ""
    return ""


def _command(index: int, message: Message) -> tuple[str, bytes, bytes]:
    if message.is_command:
        return _EMPTY, b"", b""
    name = object_of(message).encode()
    if message.is_gone:
        return _DELETE, name, b""
    text = to_text(message.data, ensure_ascii=False, allow_nan=False)
    return _PUT, name, text.encode()
