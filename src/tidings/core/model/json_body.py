"""Convert the body of a POST (one JSON object, a JSON array or NDJSON) to lines of the log.

The whole body is validated before anything is written. If one operation is invalid, the request is
rejected.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from tidings.core import limits
from tidings.core.errors import InvalidOperation, Rejected, TooLarge, WrongContentType
from tidings.core.model.operations import (
    Canonical,
    build_line,
    line_from,
    parse_number,
    plain_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tidings.core.model.typed import Fields

    Reader = Callable[[bytes], Iterator[tuple[str, object]]]
    # A function that converts a decoded JSON value of a request to a line of the log. The other
    # arguments are the time in ms, and the place of the value in the request, for errors.
    LineOf = Callable[[object, int, str], str]

JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
_PLAIN_BYTES_MAX = 2_000  # most operations without data are much smaller
_SPACES = " \t\r\n"  # the white space of JSON
_VALUE_AT = re.compile(rf"[{_SPACES}]*:[{_SPACES}]*")
# For `_structure`: treat both kinds of brackets alike, and remove all other bytes.
_ALIKE = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b'[]{},"'))
_MANY_DIGITS = b"0" * sys.int_info.str_digits_check_threshold
_ALL_ZEROS = bytes.maketrans(b"123456789", b"000000000")


def lines_from(
    body: bytes, content_type: str, *, now_ms: int, line_of: LineOf | None = None
) -> list[str]:
    """Return the operations of one request as lines of the log, in order.

    *line_of* converts each decoded value of the body to a line. If *line_of* is None, the values
    are operations.

    Raises:
        WrongContentType: the content type is neither JSON nor NDJSON.
        InvalidOperation: the body is not JSON, has no operation, or a field breaks its rule.
        TooLarge: the body has too many bytes or operations.
    """
    if line_of is None and len(body) <= _PLAIN_BYTES_MAX and content_type == JSON_TYPE:
        line = _plain_line(body, now_ms)
        if line is not None:
            return [line]
    read = reader_for(content_type)
    check_size(body)
    lines = _ordinary_lines(body, read, now_ms) if line_of is None else None
    if lines is None:
        line_of = line_of or _operation_line
        lines = [line_of(raw, now_ms, where) for where, raw in read(body)]
    if not lines:
        raise InvalidOperation("needs at least one operation", field="body")
    return lines


def _operation_line(raw: object, now_ms: int, where: str) -> str:
    return line_from(raw, now_ms=now_ms, where=where)


def _plain_line(body: bytes, now_ms: int) -> str | None:
    """Return the line of *body* if it is one operation that `plain_line` accepts."""
    typed = compiled_parser()
    if typed is None:
        return None
    try:
        return _plain(typed.decode_one(body), now_ms)
    except typed.REJECTED:
        return None


def _plain(fields: Fields, now_ms: int) -> str | None:
    """Return the line of *fields* if they are only those of `plain_line`, which accepts them."""
    if fields.timestamp is not None or fields.tags is not None or fields.changed is not None:
        return None
    if bytes(fields.data):
        return None
    return plain_line(fields.event, fields.type, fields.id, fields.parents, now_ms)


def _ordinary_lines(body: bytes, read: Reader, now_ms: int) -> list[str] | None:
    """Return the lines of *body* if a compiled parser accepts it and all operations are valid.

    Otherwise return None. The caller then parses the body with *read*, which raises an error that
    names the invalid operation.
    """
    typed = compiled_parser()
    if typed is None:
        return None
    depth_max, texts = limits.JSON_DEPTH_MAX, [body]
    try:
        if read is _read_ndjson:
            texts = [text for text in body.split(b"\n") if text]
        elif body.startswith(b"["):
            depth_max, texts = depth_max - 1, typed.decode_array(body)
        check_count(len(texts))
        return [_ordinary_line(bytes(text), depth_max, now_ms, typed) for text in texts]
    except (*typed.REJECTED, Rejected):
        return None


def _ordinary_line(text: bytes, depth_max: int, now_ms: int, typed: ModuleType) -> str:
    fields = typed.decode_one(text)
    line = _plain(fields, now_ms)
    if line is not None:
        return line
    data, spelled = None, bytes(fields.data)
    if spelled:  # if `data` occurs twice, the parser has not checked the first occurrence
        if len(spelled) > limits.OPERATION_BYTES_MAX:
            raise TooLarge("may be shorter in the log, so the other parser decides", field="data")
        _check_depth(text, "data", depth_max)
        # Python may refuse to parse a very long sequence of digits.
        if len(text) > len(_MANY_DIGITS) and _MANY_DIGITS in text.translate(_ALL_ZEROS):
            raise InvalidOperation("contains a very long number", field="data")
        data = (
            Canonical(spelled.decode())
            if typed.is_canonical(spelled)
            else decode_json(spelled, "data")
        )
    return build_line(
        fields.event,
        fields.type,
        fields.id,
        fields.timestamp,
        fields.parents,
        (fields.tags, fields.changed, data),
        now_ms,
        "",
    )


@cache
def compiled_parser() -> ModuleType | None:
    """Return the module of the compiled parser, or None if its package is not installed."""
    try:
        from tidings.core.model import typed
    except ImportError:
        return None
    return typed


def reader_for(content_type: str) -> Reader:
    """Return the function that reads the operations of a body of *content_type*.

    Raises:
        WrongContentType: the content type is neither JSON nor NDJSON.
    """
    read = _READERS.get(content_type) or _READERS.get(
        content_type.partition(";")[0].strip().lower()
    )
    if read is None:
        rule = f"must be {JSON_TYPE} or {NDJSON_TYPE}"
        raise WrongContentType(rule, field="Content-Type", value=content_type)
    return read


def check_size(body: bytes) -> None:
    """Check the size of *body* before it is parsed.

    Raises:
        TooLarge: *body* exceeds `limits.REQUEST_BYTES_MAX`.
    """
    if len(body) > limits.REQUEST_BYTES_MAX:
        rule = f"a request holds at most {limits.REQUEST_BYTES_MAX} bytes, this one {len(body)}"
        raise TooLarge(rule, field="body")


def object_from(body: bytes, wrong: type[Rejected]) -> dict[str, Any]:
    """Return the JSON object in *body*, or an empty dict if the body is blank.

    Raises:
        *wrong*: the body is JSON but not an object, or a name is repeated.
        InvalidOperation: see `decode_json`.
        TooLarge: see `check_size` and `decode_json`.
    """
    check_size(body)
    value, spelled = decode_spelled(body, "body") if body.strip() else ({}, "{}")
    if not isinstance(value, dict):
        raise wrong("must be a JSON object", field="body")
    for name, times in Counter(name for name, _ in members(spelled)).items():
        if times > 1:  # refuse the body, because an ignored occurrence may be the intended one
            raise wrong("is given more than once", field=name)
    return value


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dict of *pairs*. JSON decoders of settings use this function as `object_pairs_hook`.

    Raises:
        ValueError: a key is repeated.
    """
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise ValueError(f"{name} is given more than once")
    return dict(pairs)


def decode_json(text: bytes, field: str) -> Any:
    """Parse one JSON value.

    Raises:
        InvalidOperation: *text* is not JSON (such as NaN) or is nested too deeply.
        TooLarge: *text* has too many brackets and commas.
    """
    return decode_spelled(text, field)[0]


def decode_spelled(text: bytes, field: str) -> tuple[Any, str]:
    """Parse one JSON value as `decode_json` does; return the value and its text.

    Raises:
        InvalidOperation, TooLarge: see `decode_json`.
    """
    _check_depth(text, field)
    most = limits.JSON_PARTS_MAX
    if sum(map(text.count, (b"[", b"{", b","))) > most and len(_structure(text)) > most:
        rule = f"one JSON value holds at most {most} brackets and commas"
        raise TooLarge(rule, field=field)
    return _decode(text, field)


def decode_array(body: bytes) -> Any:
    """Parse *body* as `decode_json` does; the limit of parts applies to each element of an array.

    A large array is decoded by element, because no other thread runs during a call of the decoder.

    Raises:
        InvalidOperation, TooLarge: see `decode_json`; or the array has too many elements.
    """
    if len(body) <= limits.JSON_PARTS_MAX or body.lstrip()[:1] != b"[":
        return decode_json(body, "body")
    _check_depth(body, "body")
    typed = compiled_parser()
    if typed is None:
        return _decode(body, "body")[0]
    try:
        texts = typed.decode_array(body)
    except typed.REJECTED as error:
        raise InvalidOperation(f"must be JSON ({error})", field="body") from None
    check_count(len(texts))
    return [decode_json(bytes(text), "body") for text in texts]


def _decode(text: bytes, field: str) -> tuple[Any, str]:
    given = text.decode("utf-8", "replace").strip(_SPACES)
    try:
        value, end = _DECODER.raw_decode(given)
        if end < len(given):
            _DECODER.decode(given)  # raises an error that names the trailing text
        return value, given
    except (ValueError, RecursionError) as error:
        raise InvalidOperation(f"must be JSON ({error})", field=field) from None


def members(text: str) -> Iterator[tuple[str, str]]:
    """Yield each name in *text*, a valid JSON object, with the text of its value."""
    at = 1
    while (name_at := text.find('"', at)) >= 0:
        name, at = _DECODER.raw_decode(text, name_at)
        start = _VALUE_AT.match(text, at).end()  # type: ignore[union-attr]
        at = _DECODER.raw_decode(text, start)[1]
        yield name, text[start:at]


def _in_order(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dict of *pairs* in which a repeated key has the position of its last occurrence.

    The order matters, because keys that differ only in case are the same field, and the last of
    these keys counts. `dict(pairs)` keeps the position of the first occurrence.
    """
    ordered = dict(pairs)
    if len(ordered) < len(pairs):
        for key, value in pairs:
            ordered.pop(key, None)
            ordered[key] = value
    return ordered


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# All operations share this decoder. `json.loads` would build one for each operation, which takes as
# long as decoding.
_DECODER = json.JSONDecoder(
    parse_float=parse_number, parse_constant=_refuse_constant, object_pairs_hook=_in_order
)


def _check_depth(text: bytes, field: str, depth_max: int = limits.JSON_DEPTH_MAX) -> None:
    """Check that *text* is not nested deeper than *depth_max*.

    Python's parser is recursive, so it must not parse the text before this check.
    """
    if text.count(b"[") + text.count(b"{") <= depth_max:
        return  # nearly every operation returns here, which saves a third of its parsing time
    brackets = _structure(text).translate(None, b",")
    for _ in range(depth_max):
        if b"[]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")  # the innermost brackets of each place
    if b"[]" in brackets or brackets.count(b"[") > depth_max:
        raise InvalidOperation(f"nested deeper than {limits.JSON_DEPTH_MAX}", field=field)


def _structure(text: bytes) -> bytes:
    """Return the brackets and commas of the JSON *text*, without those in strings.

    Each step is one call of compiled code. A loop in Python over the brackets of a request would
    take a second.
    """
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(text.translate(_ALIKE, _OTHERS).split(b'"')[::2])


def check_count(count: int) -> None:
    """Check the number of operations in a request.

    Raises:
        TooLarge: *count* exceeds `limits.REQUEST_OPERATIONS_MAX`.
    """
    if count > limits.REQUEST_OPERATIONS_MAX:
        rule = f"a request holds at most {limits.REQUEST_OPERATIONS_MAX} operations, got {count}"
        raise TooLarge(rule, field="body")


def _read_json(body: bytes) -> Iterator[tuple[str, object]]:
    value = decode_array(body)
    if not isinstance(value, list):
        yield "", value
        return
    check_count(len(value))
    for at, raw in enumerate(value):
        yield f"ops[{at}].", raw


def _read_ndjson(body: bytes) -> Iterator[tuple[str, object]]:
    texts = [(at, text) for at, text in enumerate(body.split(b"\n"), 1) if text.strip()]
    check_count(len(texts))
    for at, text in texts:
        yield f"line {at}: ", decode_json(text, f"line {at}")


_READERS: dict[str, Reader] = {
    JSON_TYPE: _read_json,
    NDJSON_TYPE: _read_ndjson,
    "application/ndjson": _read_ndjson,
    "application/jsonl": _read_ndjson,
}

__all__ = [
    "JSON_TYPE",
    "NDJSON_TYPE",
    "Rejected",
    "check_count",
    "check_size",
    "decode_array",
    "decode_json",
    "lines_from",
    "object_from",
]
