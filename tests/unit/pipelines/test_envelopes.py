"""Messages of brokers as operations: ours, CloudEvents, Debezium's, an author's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.pipelines.messages import video
from tidings.client.poster import encode
from tidings.pipelines import Message
from tidings.pipelines.bodies import encoder
from tidings.pipelines.documents import Messages
from tidings.pipelines.messages import WrongPipeline


def read(envelope: Any, value: Any, key: Any = None, *, type: str = "", id: str = "id") -> Any:
    """Read *value* and *key*, which are encoded as JSON unless they are bytes or None."""
    raw = [
        each if each is None or isinstance(each, bytes) else json.dumps(each).encode()
        for each in (key, value)
    ]
    return Messages(envelope, type, id).operations("here", *raw)


@pytest.mark.parametrize("envelope", ["tidings", "cloudevents", "debezium"])
def test_what_our_stores_write_reads_as_what_was_posted(envelope: str) -> None:
    """This covers inserts, updates, deletes and leaves, with all fields."""
    more = {"parents": ["a"], "timestamp": "2026-11-25T12:00:00Z", "tags": ["x"]}
    write = encoder(envelope, "main")
    for op, event in (("insert",) * 2, ("update",) * 2, ("delete",) * 2, ("leave", "delete")):
        message = video(op, "x32", 5, {"n": 1})
        message.data |= more
        wanted = {"event": event, "type": "video", "id": "x32", "data": {"n": 1}, **more}
        assert read(envelope, write(message).encode()) == [wanted]
    erased = video("erase", "x32", 5, {"reason": "request 7"})
    gone = {"event": "delete", "type": "video", "id": "x32"}
    assert erased.is_gone
    if envelope != "debezium":  # its details are not posted again
        assert [{**each, "timestamp": ""} for each in read(envelope, write(erased).encode())] == [
            {**gone, "timestamp": ""}
        ]
    copied = Message("insert", "video", "", {"type": "video", "id": "a"}, "65650000" + "f" * 16)
    assert read(envelope, write(copied).encode())[0]["event"] == "insert"
    assert read(envelope, write(Message("command", "", "", {}, "1")).encode()) == []


def test_documents() -> None:
    """A document has a type; one without a value deletes the object of its key."""
    (made,) = read("plain", {"sku": 7, "n": [1]}, type="product", id="sku")
    assert made == {"event": "insert", "type": "product", "id": "7", "data": {"sku": 7, "n": [1]}}
    (gone,) = read("plain", None, b"7", type="product", id="sku")
    assert gone == {"event": "delete", "type": "product", "id": "7"}
    assert read("plain", None, b"7") == []
    operation = {"event": "delete", "type": "a", "id": "1"}
    assert read("plain", operation) == [operation]


@pytest.mark.parametrize(
    ("envelope", "text"),
    [
        ("plain", '{"id":"a","n":%s}'),
        ("cloudevents", '{"type":"x","subject":"a","data":{"n":%s}}'),
        ("debezium", '{"source":{},"op":"c","after":{"id":"a","n":%s}}'),
        (
            "debezium",
            r'{"source":{"connector":"mongodb"},"op":"c","after":"{\"id\":\"1\",\"n\":%s}"}',
        ),
    ],
)
@pytest.mark.parametrize("number", ["1.00000000000000000001", "-12e-400", "123456789012345678901"])
def test_numbers_keep_their_digits(envelope: str, text: str, number: str) -> None:
    """This holds from the message to the feed, also in a document within a text."""
    (made,) = read(envelope, (text % number).encode(), type="video")
    assert f'"n":{number}' in encode(made).decode()


def test_a_number_with_more_digits_than_a_double_is_an_id() -> None:
    """It is the id of one object, and differs from the id of its double."""
    for id in ("1.00000000000000000001", '{"a": 1.00000000000000000001}'):
        (made,) = read("plain", f'{{"id":{id}}}'.encode(), type="video")
        assert made["id"] == id
    (made,) = read("plain", b'{"id":"a","n":1e400}', type="video")
    assert made["data"]["n"] == "1e400"


def test_cloudevents_of_others() -> None:
    """The id is a field of their data, else their subject."""
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": "1",
        "source": "/shop",
        "type": "com.shop.sold",
    }
    event |= {"subject": "orders/7", "data": {"total": 3}}
    (made,) = read("cloudevents", event, type="order")
    assert made == {"event": "insert", "type": "order", "id": "orders/7", "data": {"total": 3}}
    (made,) = read("cloudevents", {**event, "data": {"id": 9}}, type="order")
    assert (made["id"], made["data"]) == ("9", {"id": 9})
    with pytest.raises(WrongPipeline, match=r"here: a CloudEvent 'com\.shop\.sold' needs the type"):
        read("cloudevents", event)


def row(op: str, before: Any, after: Any, **source: str) -> dict[str, Any]:
    told = {"connector": "postgresql", "table": "videos", **source}
    return {"before": before, "after": after, "source": told, "op": op, "ts_ms": 1}


def test_rows_of_debezium() -> None:
    """They may have a schema around them, and the type may be the table or a given one."""
    made = read("debezium", row("c", None, {"a": 1, "b": 2}), {"a": 1})
    assert made == [{"event": "insert", "type": "videos", "id": "1", "data": {"a": 1, "b": 2}}]
    wrapped = {"schema": {}, "payload": row("u", None, {"a": 1, "b": 2})}
    (made,) = read("debezium", wrapped, {"schema": {}, "payload": {"b": 2, "a": 1}}, type="v")
    assert (made["event"], made["type"], made["id"]) == ("update", "v", "2/1")
    gone = [{"event": "delete", "type": "videos", "id": "1"}]
    assert read("debezium", row("d", {"a": 1}, None), {"a": 1}) == gone
    assert read("debezium", row("d", None, None), {"a": 1}) == gone
    assert read("debezium", row("d", {"a": 1}, None), id="a") == gone
    assert read("debezium", None, {"a": 1}) == []
    assert read("debezium", {**row("m", None, None), "message": {"prefix": "x"}}) == []


def test_what_debezium_itself_wrote() -> None:
    """Its connector 3.0.8 of a PostgreSQL: a table that was copied, then changed, keys among it.

    With tombstones; by a line the key and the value of a message.
    """
    lines = (Path(__file__).parent / "debezium.tsv").read_text().splitlines()
    found: dict[str, Any] = {}
    for key, value in (line.split("\t") for line in lines):
        raw = None if value == "null" else value.encode()
        for each in read("debezium", raw, key.encode(), type="video"):
            found[each["id"]] = each.get("data")
    first = {"title": "one", "price": "AJY=", "seen": "2026-01-02T03:04:05.000000Z", "ok": True}
    second = {"title": "zwei", "price": None, "seen": None, "ok": False}
    assert found == {"1": {"id": 1, **first}, "2": {"id": 2, **second}, "3": None, "10": None}


def test_documents_of_debezium() -> None:
    """MongoDB's documents and ids are sent as text."""
    source = {"connector": "mongodb", "collection": "films", "table": ""}
    for told, name in (
        ('{"$oid":"596e275826f08b2730779e1f"}', "596e275826f08b2730779e1f"),
        ("1004", "1004"),
        ('"a"', "a"),
    ):
        text = json.dumps({"_id": json.loads(told), "n": 1})
        (made,) = read("debezium", row("r", None, text, **source), {"id": told})
        assert (made["type"], made["id"], made["data"]["n"]) == ("films", name, 1)
    with pytest.raises(WrongPipeline, match="an event 'u' lacks the whole row"):
        read("debezium", row("u", None, None, **source), {"id": '"1"'})


def test_a_function_of_the_author() -> None:
    """It maps key and value to operations; an exception stops the reader with its text."""
    made = [{"event": "insert", "type": "a", "id": "1"}]
    assert read(lambda key, value: made if value == b"x" else [], b"x", b"k") == made
    assert read(lambda key, value: [], b"y") == []
    with pytest.raises(WrongPipeline, match="here: KeyError: 'a'"):
        read(lambda key, value: {"b": []}["a"], b"y")


@pytest.mark.parametrize(
    ("envelope", "value", "said"),
    [
        ("plain", b"\xff", "UnicodeDecodeError"),
        ("plain", b"{", "JSONDecodeError"),
        ("plain", [1], "must be a JSON object"),
        ("plain", {"type": "a", "id": ""}, "id: "),
        ("tidings", None, "must be a JSON object"),
        ("tidings", {}, "KeyError: 'op'"),
        ("cloudevents", {"type": 1}, "AttributeError"),
        ("debezium", {"a": 1}, r"not a change event of Debezium; its fields are \['a'\]"),
        ("debezium", row("c", None, {"a": 1}), r"neither a key nor a 'id'; it has \['a'\]"),
        ("debezium", row("t", None, None), "skipped.operations=t"),
    ],
)
def test_what_cannot_be_read_says_where_it_is(envelope: str, value: Any, said: str) -> None:
    """The error also has the reason."""
    with pytest.raises(WrongPipeline, match=f"here: .*{said}"):
        read(envelope, value)


def test_an_envelope_that_there_is_not() -> None:
    """All that there are, are named."""
    with pytest.raises(WrongPipeline, match="plain, tidings, cloudevents, debezium, not 'avro'"):
        Messages("avro", "", "id")
