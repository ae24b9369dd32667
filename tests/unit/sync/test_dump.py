"""The dump as a table: what Spark recognises is what the core would say."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from tests.unit.sync.engines import on_both
from tests.unit.sync.lines import line, written
from tidings.core.errors import Rejected
from tidings.core.sync.dumps import Described, read_line
from tidings.sync import dump, spark_session
from tidings.sync.dump import first_bad

# Pieces that ordinary lines are made of, and some that make a line anything but ordinary.
TYPES = ["video", "Video", "a b", "v%", "v/w", "", "é", "t" * 128, "t" * 129, "\u0130", "a\\u0041"]
IDS = [
    "x1",
    "",
    "ü",
    "a/b%c",
    "i" * 128,
    "i" * 513,
    "\\u0000",
    "\\ud800",
    "\x7f",
    "😀",
    "a\tb",
    "é" * 300,
]
STAMPS = [
    "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.1Z", "2026-01-02T03:04:05.100Z",
    "2026-01-02T03:04:05.000Z", "2026-01-02T03:04:10Z", "2026-01-02T03:04:05.123456789Z",
    "2026-01-02T03:04:05.0009Z", "2026-02-29T00:00:00Z", "2024-02-29T00:00:00Z",
    "2026-04-31T00:00:00Z", "2026-12-31T23:59:60Z", "2026-12-31T24:00:00Z", "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", "2026-01-02T03:04:05+02:00",
    "2026-01-02t03:04:05z", "2026-01-02", "٢٠٢٦-01-02T03:04:05Z", "2026-01-02T03:04:05.Z",
]  # fmt: skip
PARENTS = [
    "[]", '["user/a"]', '[ "a" , "b" ]', "null", '[""]', "[1]", '["a",]', '[,"a"]', '["a" "b"]',
    "[" + ",".join(['"p"'] * 64) + "]", "[" + ",".join(['"p"'] * 65) + "]", '["a\\n"]', '"a"',
    '["' + "é" * 160 + '"]',
]  # fmt: skip
TAGS = [
    "[" + ",".join(['"t"'] * 32) + "]", '["a", "b"]', "[" + ",".join(['"t"'] * 33) + "]", "[]",
    '["a","",""]', '["a" "b"]', "{}", "7", "null", '["\\ud800"]',
]  # fmt: skip
DATA = [
    '{"a":1}', '{"title": "a\\"b é😀","n":[1, -2.5,0,true,null], "o":{"p":{}}}', "null",
    '{ "title" : "a" , "n":[ 1 ] }', '"text"', "[[[[1]]]]", "[[[[[1]]]]]", '{"a":1,}', "[1,]",
    "[,1]", '{"a" 1}', '{"a":}', "{1:2}", "01", "-", "1.", ".5", "1e5", "1e999", "NaN",
    "1234567890123456789", "0.1234567890123456789", '"\\u0041"', '"\\ud800"', '"\\x"', '"\u0085"',
    '"\x7f"', '"a\tb"', "'a'", "tru", "1 2", "[1}", "[", "[" * 33 + "]" * 33,
    '{"id":"y","type":"z","a":[{"id":"w"},{"b":"]}"}]}',
]  # fmt: skip
ODD = [
    "", " ", "\r", "{}", "[]", "null", "{", '{"tidings":"end","lines":3}', "\u2028", "NaN",
    '{"type":"a","id":"b","parents":[],"timestamp":"2026-01-01T00:00:00Z"}\u2028',
    '{"type":"a","id":"b","parents":[],"type":"c"}',
    '{"type":"a","id":"b","type":"c","timestamp":"2026-01-01T00:00:00Z"}',
    '{"type":"a","id":"b","id":"c","parents":[]}',
    '{"type":"id","id":"type","parents":["timestamp"],"timestamp":"2026-01-01T00:00:00Z"}',
    '{"type":"a","id":7,"parents":[],"timestamp":"2026-01-01T00:00:00Z"}',
    '{"type":"a","id":"b","parents":[],"timestamp":"2026-01-01T00:00:00Z",}',
    '{"type":"a","id":"b","parents":[],"timestamp":"2026-01-01T00:00:00Z"} x',
    '{"Type":"a","ID":"b","parents":[],"timestamp":null,"data":{"a":[1]},"tags":["t"]}',
    '\ufeff{"type":"a","id":"b","parents":[],"timestamp":"2026-01-01T00:00:00Z"}',
]  # fmt: skip
RAW = [
    b'{"type":"a","id":"\xff","parents":[],"timestamp":"2026-01-01T00:00:00Z"}',
    b'{"type":"a","id":"\xf0\x9f\x98","parents":[],"timestamp":"2026-01-01T00:00:00Z"}',
    b'{"type":"a","id":"\xed\xa0\x80","parents":[],"timestamp":"2026-01-01T00:00:00Z"}',
]


def made(random: Random, order: Sequence[str] = ()) -> str:
    """Return a line with its keys in that order or any, mostly ordinary, sometimes with one odd
    value."""
    values = {"type": TYPES[:3], "id": IDS[:1], "timestamp": STAMPS[:6], "parents": PARENTS[:3]}
    odd = {"type": TYPES, "id": IDS, "timestamp": STAMPS, "parents": PARENTS}
    broken = random.choice([*values, "", ""])
    blanks, entries = ([""] if order and random.random() < 0.7 else ["", " "]), []
    for key in order or random.sample(list(values), 4):
        value = random.choice((odd if key == broken else values)[key])
        text = value if key == "parents" else f'"{value}"'
        entries.append(f'"{key}"{random.choice(blanks)}:{random.choice(["", " "])}{text}')
    for key, values_ in (("tags", TAGS), ("changed", TAGS), ("data", DATA)):
        if random.random() < (0.3 if order else 0.03):
            place = random.choice([len(entries)] * 4 + [random.randrange(len(entries) + 1)])
            value = random.choice(random.choice([values_[:2], values_]))
            entries.insert(place, f'"{key}":{random.choice(["", " "])}{value}')
    comma = random.choice(["", " "] if blanks == [""] else ["", " ", "  "])
    return random.choice(blanks) + "{" + f"{random.choice(blanks)},{comma}".join(entries) + "}"


def said(text: bytes) -> tuple[str, str, str | None] | None:
    """Key, moment and note of an object by the core's own function."""
    try:
        found = read_line(text)
    except Rejected:
        return None
    return (found.key, found.moment, found.note) if isinstance(found, Described) else None


@on_both
def test_what_spark_recognises_is_what_the_core_says(session: SparkSession, tmp_path: Path) -> None:
    """Spark finds the same key and time as the core in thousands of valid and invalid lines, or
    leaves the line to the core. Every object of the dump is found by one of them.
    """
    random = Random(1)
    texts = [made(random).encode() for _ in range(3000)] + [each.encode() for each in ODD] + RAW
    path = written(tmp_path / "dump", [b"", *texts])  # a mark at the file's start is dropped

    table = dump.recognise_lines(spark_session.current().text(session, [path])).cache()
    lines, asked = table.collect(), dump.read_by_core(table).collect()

    assert [bytes(each["text"]) for each in lines[1:]] == texts
    recognised = [each for each in lines if each["key"] is not None]
    assert len(recognised) > 1000
    for each in recognised:
        assert (each["key"], each["moment"], each["note"]) == said(bytes(each["text"])), each[
            "text"
        ]
    objects = [
        (each["key"], each["moment"], each["note"]) for each in (*recognised, *asked) if each["key"]
    ]
    assert sorted(objects, key=str) == sorted(filter(None, map(said, texts)), key=str)
    assert [each["end"] for each in asked if each["end"] is not None] == [3]


KEYS = ("type", "id", "timestamp", "parents")


@on_both
@pytest.mark.parametrize("first", KEYS)
def test_lines_of_one_order_are_what_the_core_says(
    session: SparkSession, tmp_path: Path, first: str
) -> None:
    """The pattern for a dump's own order takes no line that the core reads otherwise."""
    order = KEYS[KEYS.index(first) :] + KEYS[: KEYS.index(first)]
    random = Random(3)
    texts = [made(random, order).encode() for _ in range(1500)] + [each.encode() for each in ODD]
    stamp = '"timestamp":"2026-01-01T00:00:00Z"'
    odd = [b"\x01a\x01b\x01c", f'{{"type":"a\x01","id":"b","parents":[],{stamp}}}'.encode(), *RAW]
    values = {"type": '"V"', "id": '"x"', "timestamp": '"2026-01-01T00:00:10.10Z"', "parents": "[]"}
    head = "{" + ",".join(f'"{name}":{values[name]}' for name in order) + "}"
    path = written(tmp_path / "dump", [head.encode(), *texts, *odd])

    text = spark_session.current().text(session, [path])
    apart = text.select(dump.apart_column(order).alias("apart"))
    found = dump.recognise_lines(text).collect()

    assert apart.where(F.col("apart").startswith("\x01")).count() > 100
    assert (found[0]["key"], found[0]["moment"]) == ("v/x", "2026-01-01T00:00:10.1")
    for each in found:
        if each["key"] is not None:
            assert (each["key"], each["moment"], each["note"]) == said(bytes(each["text"])), each[
                "text"
            ]
    with_data = [each for each in found if b'"data"' in bytes(each["text"])]
    assert sum(each["key"] is not None for each in with_data) > 20


@on_both
def test_ordinary_lines_do_not_wait_for_python(session: SparkSession, tmp_path: Path) -> None:
    """The lines of oplog's producers are recognised with any order of keys."""
    texts = [
        line("x1", 1),
        line("ü€😀", 2.5, parents=["user/ä", "b"]),
        b'{"timestamp":"2026-01-01T00:00:00.123456Z","parents":[],"type":"A_b-1","id":"/%"}\r',
        line("x2", 1)[:-1] + b', "data": {"title": "\xc3\xbc \\"b\\"", "n": [1, {"p": [null]}]}}',
    ]
    path = written(tmp_path / "dump", texts)
    found = dump.recognise_lines(spark_session.current().text(session, [path])).collect()
    assert [each["key"] for each in found] == ["video/x1", "video/ü€😀", "a_b-1//%", "video/x2"]
    assert found[2]["moment"] == "2026-01-01T00:00:00.123"


@on_both
def test_the_last_line_of_an_object_counts(session: SparkSession, tmp_path: Path) -> None:
    """In a file, over splits of a file, and over files by their names."""
    one = written(tmp_path / "1", [line(f"x{n % 700}", n % 60) for n in range(2000)])
    two = written(tmp_path / "2", [line("x5", 59), line("y", 1), line("x5", 3)])
    session.conf.set("spark.sql.files.maxPartitionBytes", 20_000)
    try:
        text = spark_session.current().text(session, [one, two])
        splits = text.select("block").distinct().count()
        assert is_remote() or splits > 5  # Sail reads a file in one piece
        found = dump.latest(dump.recognise_lines(text)).collect()
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")

    expected = {f"video/x{n % 700}": line(f"x{n % 700}", n % 60) for n in range(2000)}
    expected |= {"video/x5": line("x5", 3), "video/y": line("y", 1)}
    assert len(found) == len(expected)
    assert {each["key"]: bytes(each["text"]) for each in found} == expected


@on_both
def test_a_bad_line_is_named_by_file_and_number(session: SparkSession, tmp_path: Path) -> None:
    """This includes a late line of a file that is read in splits, and a gzipped file."""
    texts = [line(f"x{n}", 1) for n in range(1000)]
    texts[2], texts[900] = b"", b'{"type":"video"}'
    one = written(tmp_path / "a file", texts)
    packed = tmp_path / "b.gz"
    packed.write_bytes(gzip.compress(line("y", 1) + b"\n\n" + json.dumps([1]).encode()))
    session.conf.set("spark.sql.files.maxPartitionBytes", 20_000)
    try:
        lines = dump.recognise_lines(
            spark_session.current().text(session, [one, str(packed)])
        ).cache()
        bad = dump.read_by_core(lines).where("error IS NOT NULL").cache()
        found = [str(each) for each in first_bad(bad, lines, {})]
    finally:
        session.conf.unset("spark.sql.files.maxPartitionBytes")
    assert found == [f"{one}:901: id: is required", f"{packed}:3: must be a JSON object"]


@on_both
def test_the_last_line_needs_no_line_feed(session: SparkSession, tmp_path: Path) -> None:
    """A final line feed begins no further line; a byte order mark is not part of the text."""
    texts = [b"", b"\n", b"one", b"\xef\xbb\xbfone\r\n\ntwo", b"one\n" * 2, b"x" * 9_000_000]
    paths = [tmp_path / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text)
    read = spark_session.current().text(session, [str(path) for path in paths])
    counts = Counter(int(each["path"][-1]) for each in read.select("path").collect())
    assert counts == {1: 1, 2: 1, 3: 3, 4: 2, 5: 1}
    found = [
        bytes(each["text"]) for each in read.where("path LIKE '%3'").orderBy("number").collect()
    ]
    assert found == [b"one\r", b"", b"two"]
