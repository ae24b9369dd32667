"""Redis or Valkey as a store, a real one."""

from __future__ import annotations

import pytest
import redis

from tests.unit.pipelines.messages import RESET
from tests.unit.pipelines.real_stores import hash_of
from tidings.client.errors import Unwritten
from tidings.pipelines import Message, Redis
from tidings.pipelines.messages import Overtaken, WrongPipeline


def message(op: str, name: str, data: object = None) -> Message:
    return Message(op, "video", "", {"type": "video", "id": name, "data": data}, "0" * 24)


def opened(url: str, key: str) -> Redis:
    sink = Redis(url, key)
    sink.open("p.hash")
    return sink


def test_objects_become_fields(redis_url: str) -> None:
    """The batch inserts, updates and deletes, also an unknown object; a repeat of it changes
    nothing."""
    sink = opened(redis_url, "made")
    batch = [message("insert", "a", 1), message("insert", "\u00e4", 1), message("update", "a", 2)]
    batch += [message("delete", "\u00e4"), message("leave", "never")]
    for _ in range(2):
        sink.write(batch, 1)
        assert hash_of(redis_url, "made") == {"a": {"type": "video", "id": "a", "data": 2}}
    sink.close()


def test_before_a_copy_the_hash_is_emptied(redis_url: str) -> None:
    """It is emptied at its place in the batch."""
    sink = opened(redis_url, "emptied")
    sink.write([RESET, message("insert", "old")], 1)
    sink.write([message("insert", "older"), RESET, message("insert", "new")], 1)
    sink.close()
    assert set(hash_of(redis_url, "emptied")) == {"new"}


def test_a_worker_of_redis_that_was_overtaken_writes_nothing(redis_url: str) -> None:
    """This holds however late its batch is; a writer of another pipeline is independent."""
    old, new = opened(redis_url, "overtaken"), opened(redis_url, "overtaken")
    old.write([message("insert", "a")], 9)
    new.write([message("delete", "a")], 10)
    with pytest.raises(Overtaken, match="worker 10 writes overtaken; it has replaced worker 9"):
        old.write([message("insert", "a")], 9)
    assert hash_of(redis_url, "overtaken") == {}
    for sink in (old, new):
        sink.close()


def test_a_server_that_evicts_any_key_is_refused(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If it evicts only keys with an expiry, it is not; a hash that is ours has a warning."""
    with redis.Redis.from_url(redis_url) as server:
        try:
            server.config_set("maxmemory-policy", "allkeys-lru")
            opened(redis_url, "unlimited").close()
            server.config_set("maxmemory", "100mb")
            with pytest.raises(
                WrongPipeline, match="maxmemory-policy allkeys-lru; it would delete"
            ):
                opened(redis_url, "evicted")
            assert not server.exists("evicted:writers") and not caplog.records
            opened(redis_url, "unlimited").close()
            assert "maxmemory-policy allkeys-lru" in caplog.text
            server.config_set("maxmemory-policy", "volatile-lru")
            opened(redis_url, "evicted").close()
        finally:
            server.config_set("maxmemory", "0")


def test_what_json_cannot_hold_is_told_by_its_place(redis_url: str) -> None:
    """The messages before it are written, and none after it."""
    sink = opened(redis_url, "refused")
    batch = [message("insert", "a"), message("insert", "b", float("nan")), message("insert", "c")]
    with pytest.raises(Unwritten, match="ValueError") as raised:
        sink.write(batch, 1)
    sink.close()
    assert (raised.value.index, set(hash_of(redis_url, "refused"))) == (1, {"a"})


def test_what_redis_needs() -> None:
    """It needs an address and a key; no secret is shown; an unreachable server is an error at
    once."""
    for address in ("localhost:6379", "http://host", "redis://"):
        with pytest.raises(WrongPipeline, match="url must begin with redis or rediss or unix"):
            Redis(address)
    with pytest.raises(WrongPipeline, match="key"):
        Redis("redis://host", "")
    assert str(Redis("redis://me:secret@host:6379/1")) == "hash objects at host/1"
    with pytest.raises(redis.ConnectionError):
        Redis("redis://127.0.0.1:1").open("p.hash")
