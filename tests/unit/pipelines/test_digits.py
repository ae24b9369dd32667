"""Numbers with more digits than a double has, on their way to a store."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from opensearchpy.exceptions import SerializationError

from tests.unit.pipelines.messages import video
from tidings.core.model.operations import decode
from tidings.pipelines import Message, documents, files, mysql, parquet, postgres, redis, search
from tidings.pipelines.pipeline import pretty

NUMBERS = ["3.14159265358979323846", "-12e-400", "12345678901234567890.5"]


def _postgres(message: Message) -> str:
    json = postgres._values(message)[4]
    return str(json.dumps(json.obj))  # type: ignore[attr-defined]


STORES: dict[str, Callable[[Message], object]] = {
    "files": files.line_of,
    "mysql": lambda message: mysql._values(message)[3],
    "parquet": lambda message: parquet._row(message, 1)["data"],
    "postgres": _postgres,
    "redis": lambda message: redis._command(0, message)[2].decode(),
    "search": lambda message: search._Serializer().dumps(message.data),
}


@pytest.mark.parametrize("store", STORES)
def test_every_store_is_sent_all_digits(store: str) -> None:
    data = decode(f"[{','.join(NUMBERS)}]")
    assert f'"data":[{",".join(NUMBERS)}]' in str(STORES[store](video("insert", "a", data=data)))


def test_the_log_of_a_pipeline_has_all_digits(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        pretty()(video("insert", "a", data=decode(NUMBERS[0])))
    assert NUMBERS[0] in caplog.text


def test_an_id_of_mongodb_has_all_digits() -> None:
    """Two documents that differ in the last digit are two objects; other ids stay as they were."""
    assert documents._mongo_id(decode(f'{{"é":{NUMBERS[0]}}}')) == f'{{"\\u00e9": {NUMBERS[0]}}}'
    assert documents._mongo_id({"a": 1.5}) == '{"a": 1.5}'


def test_what_is_not_json_is_refused_by_a_search_engine() -> None:
    with pytest.raises(SerializationError):
        search._Serializer().dumps({"data": object()})
    assert search._Serializer().dumps("text") == "text"
