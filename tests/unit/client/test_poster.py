"""Posting: each batch is appended once, however often it has to be sent."""

from __future__ import annotations

import io
import os
import secrets
import threading
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tests.compat.oplog.wire import until
from tests.unit.client.fake_feed import Running, event_id
from tidings.client.cli import render
from tidings.client.cli.main import main
from tidings.client.errors import Lost, Refused
from tidings.client.events import from_text
from tidings.client.feed_api import NamedConsumers
from tidings.client.fold import Fold
from tidings.client.outbox import publish_with
from tidings.client.poster import LINE_BYTES_MAX, Poster, encode, read_batches
from tidings.core.model.operations import decode, to_ascii_json
from tidings.http.answers import json_answer
from tidings.server.running import Server

ONE = {"event": "insert", "type": "video", "id": "x1"}


def _poster(server: Running, attempts_max: int = 8) -> Poster:
    return Poster(server.url, wait=lambda delay_s: None, attempts_max=attempts_max)


def test_ids_in_order(server: Running) -> None:
    """P4.4: one id for each operation."""
    with _poster(server) as poster:
        assert poster.post([ONE, ONE]) == [event_id(1, 0), event_id(1, 1)]
        assert poster.post([ONE]) == [event_id(2)]


@pytest.mark.parametrize("faults", [["503"], ["lost"], ["503", "lost", "502", "429", "503"]])
def test_appended_once(server: Running, faults: list[str]) -> None:
    """P4.5: failures and lost answers are tried again with the same key: one page, same ids."""
    server.feed.faults.posts = list(faults)
    with _poster(server) as poster:
        ids = poster.post([ONE])

    assert ids == [event_id(1)]
    assert len(server.feed.pages) == 1
    assert len({request["idempotency-key"] for request in server.feed.requests}) == 1
    assert len(server.feed.requests) == len(faults) + 1


def test_attempts_are_bounded(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Each further attempt is logged; after the last one the error is raised."""
    server.feed.faults.posts = ["503"] * 9
    with _poster(server, attempts_max=3) as poster, pytest.raises(Lost, match="503: not now"):
        poster.post([ONE])

    assert len(server.feed.requests) == 3
    logged = [each.levelname for each in caplog.records if "trying again" in each.message]
    assert logged == ["WARNING", "WARNING"]


def test_a_refusal_is_not_repeated(server: Running) -> None:
    """P4.6: an invalid request stays invalid."""
    with _poster(server) as poster, pytest.raises(Refused, match="400 invalid_operation"):
        poster.post([{**ONE, "event": "explode"}])

    assert len(server.feed.requests) == 1


def test_a_key_of_ones_own(server: Running) -> None:
    """P4.5: the same key appends nothing again, from another connection either."""
    for _ in range(2):
        with _poster(server) as poster:
            assert poster.post([ONE], key="mine") == [event_id(1)]


def _sizes(content: bytes) -> list[int]:
    return [len(batch.lines) for batch in read_batches(io.BytesIO(content))]


def test_batches_are_cut_by_count_and_bytes() -> None:
    """500 lines, or as many as a request holds."""
    assert _sizes(b"x\n" * 1001) == [500, 500, 1]
    assert _sizes((b"x" * 400_000 + b"\n") * 5) == [2, 2, 1]
    assert _sizes(b"") == []
    assert _sizes(b"last line without an end") == [1]


def test_blank_lines_keep_their_numbers() -> None:
    """A line is found again in the input by its number."""
    found = list(read_batches(io.BytesIO(b"\n a \n\r\n\nb")))

    assert [(batch.lines, batch.numbers) for batch in found] == [([b"a", b"b"], [2, 5])]
    assert found[0].read_bytes == 9


def test_a_line_that_is_no_operation() -> None:
    """The lines before a line that exceeds all limits still form a batch."""
    content = b"x\n" + b"y" * (LINE_BYTES_MAX + 1) + b"\n"
    found = read_batches(io.BytesIO(content))

    assert next(found).lines == [b"x"]
    with pytest.raises(Refused, match="line 2 is longer"):
        next(found)


def test_a_slow_pipe_is_not_held_up() -> None:
    """Lines are passed on when the producer pauses, not only when there are 500."""
    source, sink = os.pipe()
    with open(source, "rb") as file, open(sink, "wb", buffering=0) as pipe:
        found = read_batches(file)
        pipe.write(b"a\nb\n")
        assert next(found).lines == [b"a", b"b"]
        threading.Thread(target=pipe.write, args=(b"c\n",)).start()
        assert next(found).lines == [b"c"]
        pipe.close()
        assert list(found) == []


def _incompressible(number: int, size: int) -> dict[str, object]:
    return {**ONE, "id": f"x{number}", "data": secrets.token_hex(size // 2)}


def test_what_does_not_fit_into_a_page_becomes_several() -> None:
    """In order and once, also when it is posted again with the same key; 413 of one line stays."""
    operations = [_incompressible(number, 60_000) for number in range(17)]
    with Server() as server, Poster(server.url) as poster:
        ids = poster.post(operations, key="mine")
        again = poster.post(operations, key="mine")
        lines = b"".join(encode(operation) + b"\n" for operation in operations)
        done = CliRunner().invoke(main, ["post", "-", "--url", server.url], input=lines)
        with pytest.raises(Refused, match=r"too_large.*line 17: .*65536 bytes"):
            poster.post([*operations[:16], _incompressible(99, 70_000)])
        # Counts of the last second are not in it yet; the CLI has keys of its own.
        until(lambda: httpx.get(f"{server.url}status").json()["events_ingested"] == 2 * 17)

    assert ids == again == sorted(ids) and len(ids) == 17
    assert done.exit_code == 0, done.output


def test_numbers_keep_their_digits() -> None:
    """They are sent, given to a worker and shown as they were written."""
    data = '{"n":3.14159265358979323846,"small":1e-400}'
    sent = encode({"data": decode(data)}).decode()
    answered = json_answer(200, decode(sent)).body
    shown = render.compact(from_text("", "insert", sent).data)
    assert sent == answered == shown == f'{{"data":{data}}}'


class Table:
    """Implements the client of DynamoDB as far as an outbox uses it."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []

    def transact_write_items(self, *, TransactItems: list[dict[str, Any]]) -> None:
        self.written += TransactItems


def test_numbers_that_a_client_copies_keep_their_digits() -> None:
    """This holds for objects of a copy, entries of the log, and messages of an outbox."""
    data = {"n": decode("3.14159265358979323846"), "small": decode("1e-400")}
    text = '{"n":3.14159265358979323846,"small":1e-400}'
    table = Table()
    publish_with(table, [], outbox="o", operations=[{**ONE, "data": data}])
    (put,) = table.written
    with Server() as server, Poster(server.url) as poster, NamedConsumers(server.url) as api:
        (first,) = poster.post([{**ONE, "data": data}])
        (entry,) = api.log({"from": first})["entries"]
        with Fold(server.url) as fold:
            (held,) = fold.held.values()
            assert held.data is not None
            found = [put["Put"]["Item"]["body"]["S"], *map(to_ascii_json, (entry, held.data))]
    assert all(text in each for each in found), found
