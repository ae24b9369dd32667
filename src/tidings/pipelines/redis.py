"""Write to a hash of Redis or Valkey, one field for each object."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import redis

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.pipelines.bodies import object_of, until_refused
from tidings.pipelines.documents import to_text
from tidings.pipelines.messages import Message, Overtaken, WrongPipeline

PORT = 6379
ANSWER_S = 60  # a batch fails if the server takes longer than this
_SCHEMES = ("redis", "rediss", "unix")
_PUT, _DELETE, _EMPTY = "put", "delete", "empty"

# A script that writes a batch. Redis runs a script atomically, so readers see a batch completely or
# not at all.
_WRITE = """
local objects, writers, writer, fence = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local latest = tonumber(redis.call('HGET', writers, writer) or 0)
if latest > fence then
    return latest
end
redis.call('HSET', writers, writer, fence)
for at = 3, #ARGV, 3 do
    if ARGV[at] == 'put' then
        redis.call('HSET', objects, ARGV[at + 1], ARGV[at + 2])
    elseif ARGV[at] == 'delete' then
        redis.call('HDEL', objects, ARGV[at + 1])
    else
        redis.call('UNLINK', objects)
    end
end
return 0
"""


class Redis:
    """
    A sink that keeps the hash *key* at *url* equal to the objects of the feed.

    `HGET key type/id` returns the object as JSON. One script writes a batch. The hash `key:writers`
    has the fence of the last worker; after a later worker has written, an earlier worker can no
    longer write. A reset empties the hash *key*. A written batch is on disk only if the server is
    configured with `appendonly yes` and `appendfsync always`.

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
        self._url, self._key = url, key
        self._shown = f"{parts.hostname or ''}{parts.path}"
        self._client: redis.Redis | None = None
        self._script: Any = None
        self._writer = ""

    def open(self, consumer: str) -> None:
        self._writer = consumer
        self._client = redis.Redis.from_url(self._url, socket_timeout=ANSWER_S)
        self._client.ping()  # fails now, not with the first batch, if address or password is wrong
        self._script = self._client.register_script(_WRITE)

    def write(self, messages: list[Message], fence: int) -> None:
        """
        Write the messages with one call of the script.

        Raises:
            Unwritten: JSON cannot represent the message at the error's *index*. The messages before
                it are written.
            Overtaken: a later worker has written.
        """
        commands, refusal = until_refused(messages, _command)
        if commands:
            keys = [self._key, f"{self._key}:writers"]
            parts = [part for command in commands for part in command]
            if latest := self._script(keys=keys, args=[self._writer, fence, *parts]):
                rule = f"it has replaced worker {fence}"
                raise Overtaken(f"worker {latest} writes {self._key}; {rule}")
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


def _command(index: int, message: Message) -> tuple[str, bytes, bytes]:
    if message.is_command:
        return _EMPTY, b"", b""
    name = object_of(message).encode()
    if message.is_gone:
        return _DELETE, name, b""
    text = to_text(message.data, ensure_ascii=False, allow_nan=False)
    return _PUT, name, text.encode()
