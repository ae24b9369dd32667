"""Operations: validated once, at the door, and kept as one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.core.model.agreement import lines_from
from tests.unit.core.scene import NOW, line, op
from tidings.core import limits
from tidings.core.errors import InvalidOperation, Rejected, TooLarge, WrongContentType
from tidings.core.model import operations
from tidings.core.model.json_body import JSON_TYPE, NDJSON_TYPE, decode_array, decode_json
from tidings.core.model.operations import Operation

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
OPERATIONS = st.fixed_dictionaries(
    {"event": st.sampled_from(["insert", "Update", "DELETE"]), "type": NAMES, "id": NAMES},
    optional={
        "parents": st.lists(NAMES, max_size=4),
        "tags": st.lists(NAMES, max_size=4),
        "changed": st.lists(NAMES, max_size=4),
        "data": VALUES,
        "timestamp": st.sampled_from([None, "2026-11-20T17:19:10.940+01:00"]),
    },
)


def test_the_line_of_an_operation() -> None:
    """It has the event first, the keys in oplog's order, no spaces, and only the given fields."""
    raw = op("X1", "Update", type="Video", parents=["user/U1"], timestamp="2026-11-20T17:19:10.94Z")

    assert operations.line_from(raw, now_ms=NOW) == (
        '{"event":"update","timestamp":"2026-11-20T17:19:10.94Z","parents":["user/U1"],'
        '"type":"video","id":"X1"}'
    )


def test_O15_event_and_type_are_lower_cased_and_names_are_kept() -> None:
    """Case is folded where oplog folds it and nowhere else."""
    operation = operations.parse_line(line("ID", "INSERT", type="ViDeO", parents=["User/U1"]))

    assert operation == Operation("insert", "video", "ID", ("User/U1",))


@pytest.mark.parametrize(
    ("name", "kept"),
    [("ÉTÉ\u03a3", "été\u03c3"), ("\u0130D", "id"), ("\u212a", "k"), ("ß", "ß"), ("ǅ", "ǆ")],
)
def test_O15_lower_case_is_letter_by_letter(name: str, kept: str) -> None:
    """This is oplog's rule: the neighbours of a letter do not matter, and no letter becomes two."""
    assert operations.parse_line(line(type=name)).type == kept


@pytest.mark.parametrize("field", ["type", "id", "data"])
def test_O35_no_character_ends_a_line_for_anybody(field: str) -> None:
    """Unicode's line ends are escaped: some readers of event streams would break a block there."""
    name = "a\u2028b\u2029c\u0085d"
    kept = line(**{"name" if field == "id" else field: name})

    assert len(kept.splitlines()) == 1
    assert json.loads(kept)[field] == name


@pytest.mark.parametrize(
    ("field", "bytes_max"), [("type", limits.TYPE_BYTES_MAX), ("id", limits.ID_BYTES_MAX)]
)
def test_names_are_bounded_in_bytes(field: str, bytes_max: int) -> None:
    """The limit is in bytes of UTF-8 and not in characters, as a store counts bytes."""
    operations.line_from(op() | {field: "x" * bytes_max}, now_ms=NOW)
    operations.line_from(op() | {field: "\u00e9" * (bytes_max // 2)}, now_ms=NOW)
    for value in ("x" * (bytes_max + 1), "\u00e9" * (bytes_max // 2) + "x"):
        with pytest.raises(TooLarge, match=f"{field}: holds at most {bytes_max} bytes"):
            operations.line_from(op() | {field: value}, now_ms=NOW)


def test_a_type_is_bounded_in_lower_case_too() -> None:
    """Some capitals grow: the stored type must fit, or it could not be posted again."""
    with pytest.raises(TooLarge, match="type: holds at most 128 bytes, got 192"):
        line(type="\u023a" * 64)


@pytest.mark.parametrize(
    ("field", "count_max"),
    [("parents", limits.PARENTS_MAX), ("tags", limits.TAGS_MAX), ("changed", limits.TAGS_MAX)],
)
def test_lists_are_bounded(field: str, count_max: int) -> None:
    """In number, and each text in bytes."""
    longest = "p" * limits.PARENT_BYTES_MAX
    operations.line_from(op() | {field: [longest] * count_max}, now_ms=NOW)
    with pytest.raises(TooLarge, match=f"{field}: holds at most {count_max} entries"):
        operations.line_from(op() | {field: ["p"] * (count_max + 1)}, now_ms=NOW)
    with pytest.raises(TooLarge, match=rf"{field}\[1\]: holds at most"):
        operations.line_from(op() | {field: ["p", longest + "p"]}, now_ms=NOW)


def test_an_operation_is_bounded_as_it_is_kept() -> None:
    """The limit is exact to the byte."""
    room = limits.OPERATION_BYTES_MAX - len(line(data=""))

    assert len(line(data="x" * room)) == limits.OPERATION_BYTES_MAX
    with pytest.raises(TooLarge, match="one operation holds at most 65536 bytes, this one 65537"):
        line(data="x" * (room + 1))


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        *(("hold a number beyond", n) for n in (float("nan"), float("inf"), -float("inf"))),
        ("hold a number beyond", [float("inf")]),
        *(("contain a lone surrogate", t) for t in ("\udfff", {"\ud800": 1}, [["\ud800x"]])),
    ],
)
def test_data_that_no_store_could_keep(rule: str, value: object) -> None:
    """A number beyond a double has no JSON, a lone surrogate no UTF-8."""
    with pytest.raises(InvalidOperation, match=f"data: must not {rule}"):
        line(data=value)


@pytest.mark.parametrize("value", [0, False, "", [], {}, {"a": [1, None]}, "\0\n\r\u2028"])
def test_data_is_any_value(value: object) -> None:
    """Falsy ones are kept; only null is absent."""
    assert json.loads(line(data=value))["data"] == value
    assert "data" not in line(data=None)


@given(OPERATIONS)
def test_a_line_is_one_line_and_reads_back(raw: dict[str, Any]) -> None:
    """A line with any content has no line break, its event can be sliced off, and it has the fields
    as they were sent. Posted again it gives the same bytes, which a repair from a dump relies on.
    """
    kept = operations.line_from(raw, now_ms=NOW)

    assert "\n" not in kept and "\r" not in kept
    assert operations.event_of(kept) == raw["event"].lower()
    operation = operations.parse_line(kept)
    assert operations.operation_of(kept) == operation
    assert operation.type == raw["type"].lower()
    assert operation.id == raw["id"]
    assert list(operation.parents) == raw.get("parents", [])
    assert json.loads(kept).get("data") == raw.get("data")
    assert operations.line_from(json.loads(kept), now_ms=NOW + 1) == kept


@given(OPERATIONS)
def test_data_of_is_the_line_without_its_event(raw: dict[str, Any]) -> None:
    """By slicing, so it is proved for every kind of operation."""
    kept = operations.line_from(raw, now_ms=NOW)
    event = {"event": operations.event_of(kept)}

    assert event | json.loads(operations.data_of(kept)) == json.loads(kept)
    assert "event" not in json.loads(operations.data_of(kept))
    assert "\n" not in operations.data_of(kept)


def test_a_line_gets_another_event() -> None:
    """The rest of the line stays."""
    line = operations.line_from({"event": "insert", "type": "a", "id": "insert"}, now_ms=0)

    assert operations.as_event(line, "delete") == line.replace("insert", "delete", 1)


@pytest.mark.parametrize(
    "text",
    [
        "3.14159265358979323846264338327",
        "-1e-400",
        "1.00000000000000000001E+2",
        "0.30000000000000004",
        "123456789012345678901234567890123456789012345678901",
        '["##1.5","#",{"#3.14159265358979323846":[3.14159265358979323846,"\\"##"]}]',
        '{"a":[1.1,5e-325,"5e-325"]}',
    ],
)
def test_numbers_in_data_keep_their_digits(text: str) -> None:
    """This includes more digits than a double has; text that only looks like a number stays as it
    is."""
    body = f'{{"event":"insert","type":"video","id":"x","data":{text}}}'
    (line,) = lines_from(body.encode(), JSON_TYPE, now_ms=0)

    assert line.partition(',"data":')[2] == f"{text}}}"


def test_numbers_of_one_value_are_written_in_one_way() -> None:
    """A double's own, as before."""
    body = '{"event":"insert","type":"video","id":"x","data":[1.50,1.0E+2,-0.0,1e22]}'
    (line,) = lines_from(body.encode(), JSON_TYPE, now_ms=0)

    assert line.endswith('"data":[1.5,100.0,-0.0,1e+22]}')


def read(body: bytes | str | object, content_type: str = JSON_TYPE) -> list[str]:
    if not isinstance(body, bytes):
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
    return lines_from(body, content_type, now_ms=NOW)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=x;y=z",
        " application/json ",
    ],
)
def test_O11_parameters_of_the_content_type_are_ignored(content_type: str) -> None:
    """oplog refuses them; accepting is the safer reading."""
    assert read(op(), content_type) == [line()]


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/xml", "json", "*/*", "application/jsonx"]
)
def test_O10_other_content_types(content_type: str) -> None:
    """Refused before the body is looked at."""
    with pytest.raises(WrongContentType, match="must be application/json or application/x-ndjson"):
        read(b"\xff" * 10, content_type)


def test_one_operation_or_many() -> None:
    """The order is kept."""
    assert read(op("a")) == [line("a")]
    assert read([op("b"), op("a")]) == [line("b"), line("a")]


@pytest.mark.parametrize("content_type", [NDJSON_TYPE, "application/ndjson", "application/jsonl"])
def test_one_operation_a_line(content_type: str) -> None:
    """Blank lines count for nothing, a carriage return is white space."""
    first, second = json.dumps(op("a")), json.dumps(op("b"))

    assert read(f"\n{first}\r\n  \n{second}", content_type) == [line("a"), line("b")]


def test_errors_name_the_operation() -> None:
    """By its index in an array, by its line in NDJSON (blank ones counted)."""
    good, bad = json.dumps(op("a")), json.dumps(op(""))
    with pytest.raises(InvalidOperation, match=r"^ops\[1\].id: must not be empty$"):
        read(f"[{good},{bad}]")
    with pytest.raises(InvalidOperation, match=r"^line 3: id: must not be empty$"):
        read(f"{good}\n\n{bad}", NDJSON_TYPE)
    with pytest.raises(InvalidOperation, match=r"^line 2: must be a JSON object$"):
        read(f"{good}\nnull", NDJSON_TYPE)


@pytest.mark.parametrize("body", ["", "   ", "null", "[]", "[[]]", '{"a":1', "{} {}", "{},"])
def test_O19_no_operation(body: str) -> None:
    """Nothing, null, nested arrays and trailing garbage."""
    with pytest.raises(InvalidOperation):
        read(body)


@pytest.mark.parametrize("body", ["", "\n\n", " \r\n\t\n"])
def test_empty_ndjson(body: str) -> None:
    """A request carries at least one operation."""
    with pytest.raises(InvalidOperation, match="body: needs at least one operation"):
        read(body, NDJSON_TYPE)


def test_the_bounds_of_a_request() -> None:
    """Operations and bytes, both to the last one."""
    most = limits.REQUEST_OPERATIONS_MAX
    assert len(read([op()] * most)) == most
    for content_type, body in (
        (JSON_TYPE, json.dumps([op()] * (most + 1))),
        (NDJSON_TYPE, f"{json.dumps(op())}\n" * (most + 1)),
    ):
        with pytest.raises(TooLarge, match=f"at most {most} operations, got {most + 1}"):
            read(body, content_type)

    text = json.dumps(op())
    padded = text + " " * (limits.REQUEST_BYTES_MAX - len(text))
    assert read(padded) == [line()]
    with pytest.raises(TooLarge, match="a request holds at most 1048576 bytes, this one 1048577"):
        read(padded + " ")


@pytest.mark.parametrize(
    "keys", ['"type":"video","id":"a","ID":"b","id":"x1"', '"type":"a","id":"x1","TYPE":"video"']
)
def test_O18_of_repeated_keys_the_last_in_the_text_counts(keys: str) -> None:
    """This holds in any case of letters, also if the same spelling came before."""
    assert read(f'{{"event":"insert","event":"update",{keys}}}') == [line()]


def test_invalid_utf8_becomes_replacement_characters() -> None:
    """This is how oplog decoded it; like oplog, a feed refuses a byte order mark."""
    text = json.dumps(op("x?")).encode()

    assert read(text.replace(b"?", b"\xff\xc3")) == [line("x\ufffd\ufffd")]
    with pytest.raises(InvalidOperation, match="must be JSON"):
        read(b"\xef\xbb\xbf" + text)


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_what_only_python_reads_is_not_json(name: str) -> None:
    """The error says what it was."""
    with pytest.raises(InvalidOperation, match=f"body: must be JSON \\({name} is not JSON\\)"):
        read(f'{{"data":{name}}}')


def test_depth() -> None:
    """Bounded, but brackets inside of strings are only text."""
    depth = limits.JSON_DEPTH_MAX
    assert decode_json(b"[" * depth + b"]" * depth, "body") is not None
    for body in (b"[" * (depth + 1), b'{"a":' * (depth + 1), b"[{" * 100_000):
        with pytest.raises(InvalidOperation, match="body: nested deeper than 32"):
            decode_json(body, "body")
    brackets = "[" * 100 + '\\"' + "{" * 100
    assert decode_json(f'["{brackets}", "\\\\", []]'.encode(), "body") is not None


def depth_of(text: str) -> int:
    """Count the depth character by character."""
    depth, highest, is_string, escaped = 0, 0, False, False
    for character in text:
        if is_string:
            is_string = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            is_string = True
        elif character in "[{":
            depth += 1
            highest = max(highest, depth)
        elif character in "]}":
            depth -= 1
    return highest


_STRINGS = st.text('[]{}"\\,n', max_size=4).map(json.dumps)
_NESTED = st.recursive(
    _STRINGS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]"),
        st.lists(st.tuples(_STRINGS, inner), max_size=2).map(
            lambda each: "{" + ",".join(f"{name}:{value}" for name, value in each) + "}"
        ),
    ),
)


@given(_NESTED, st.integers(25, 32))
def test_the_depth_is_that_of_the_brackets_outside_of_strings(inner: str, around: int) -> None:
    """Padding makes the text long enough that its brackets are counted at all."""
    text = "[" * around + f"{inner},[],[],[],[],[],[],[]" + "]" * around
    if depth_of(text) > limits.JSON_DEPTH_MAX:
        with pytest.raises(InvalidOperation, match="nested deeper than 32"):
            decode_json(text.encode(), "body")
    else:
        assert decode_json(text.encode(), "body") == json.loads(text)


@pytest.mark.parametrize("part", ["[]", "{}", "1", '{"a":[1]}', '"[,"'])
def test_one_value_has_a_limit_of_parts_and_an_array_of_operations_has_not(part: str) -> None:
    """No operation with more fits in the log, and each takes the decoder's time."""
    small = json.dumps([json.loads(part)] * (limits.JSON_PARTS_MAX // 10))
    assert decode_json(small.encode(), "data") == json.loads(small)
    assert decode_array(f"[{','.join([small] * 11)}]".encode()) == [json.loads(small)] * 11
    if "," not in part:
        large = f"[{','.join([part] * (limits.JSON_PARTS_MAX + 2))}]".encode()
        for body in (large, b'{"a":' + large + b"}"):
            with pytest.raises(TooLarge, match="holds at most 65536 brackets and commas"):
                decode_json(body, "data")


def test_a_string_without_end_is_refused_at_once() -> None:
    """Half a million escaped quotes: a scan that starts again at each would take an hour."""
    with pytest.raises(InvalidOperation, match="Unterminated string"):
        decode_json(b'"' + b'\\"' * 500_000, "body")


@given(st.binary(max_size=200), st.sampled_from([JSON_TYPE, NDJSON_TYPE, "", "\0;"]))
@example(b"[" * 100_000, JSON_TYPE)
@example(b"9" * 5000, JSON_TYPE)
@example(b'{"\xed\xa0\x80":1}', JSON_TYPE)
@example(b"\xef\xbb\xbf{}", JSON_TYPE)
def test_any_bytes_are_lines_or_rejected(body: bytes, content_type: str) -> None:
    """Nothing but `Rejected` comes out, and its body can always be sent."""
    try:
        assert lines_from(body, content_type, now_ms=NOW)
    except Rejected as error:
        assert json.dumps(error.body()).encode()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["event", "type", "id", "parents", "timestamp", "data", "ID", "tags"]),
            inner | st.sampled_from(["insert", "update", "2026-11-20T17:19:10Z"]),
        )
    ),
    max_leaves=12,
)


@given(JSON_VALUES)
def test_any_value_is_lines_or_rejected(value: object) -> None:
    """What looks like an operation, too: with every field of every type."""
    try:
        assert lines_from(json.dumps(value).encode(), JSON_TYPE, now_ms=NOW)
    except Rejected as error:
        assert json.dumps(error.body()).encode()
