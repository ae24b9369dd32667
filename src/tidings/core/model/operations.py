"""Operations as producers send them and as the log stores them.

An operation is a change of one object. It is validated once, on ingest, and becomes one line of
JSON. The line starts with the event name, so that a reader can extract the event name and the data
by slicing instead of parsing:

    {"event":"update","timestamp":"...","parents":[...],"type":"video","id":"x32"}
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.errors import STORAGE_DAMAGED, InvalidOperation, StorageFailed, TooLarge
from tidings.core.model import timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeGuard

EVENTS = ("insert", "update", "delete")
_EVENT_AT = len('{"event":"')
DELETION = '{"event":"delete"'  # the beginning of the line of a deletion
_DATA_AT = len('{"event":"insert",')  # each event name has six letters
# One encoder for all operations, because `json.dumps` would build one for each.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"))
_quoted = json.encoder.encode_basestring  # encodes a string as `_ENCODER` does
# Names that have together at most this number of bytes are within each of their limits.
PLAIN_BYTES_MAX = min(limits.TYPE_BYTES_MAX, limits.ID_BYTES_MAX, limits.PARENT_BYTES_MAX)
SURROGATE = re.compile("[\ud800-\udfff]")
_MARK = "#"  # repeated by `spell_numbers` at the beginning of a string that represents a number
DIGITS_SURE = 15  # a decimal with at most 15 digits equals its double
_NORMAL_MIN = 1e-300  # smaller doubles may have fewer digits
_BREAK = re.compile("[\u0085\u2028\u2029]")  # some SSE clients end a line at these characters


class LongNumber(float):
    """A JSON number with digits that its double loses. *text* has all digits of the number."""

    text: str
    seen = False  # True once a long number was parsed; until then, no data is searched for one


def parse_number(text: str) -> float:
    """Parse a JSON number that is not an integer. JSON decoders use this as `parse_float`."""
    value = float(text)
    if len(text) <= DIGITS_SURE and (
        _NORMAL_MIN < abs(value) < math.inf or "e" not in text.lower()
    ):
        return value
    if value in (math.inf, -math.inf) or _significant(text) == _significant(repr(value)):
        return value
    made = LongNumber(value)
    made.text, LongNumber.seen = text, True
    return made


_DECODER = json.JSONDecoder(parse_float=parse_number)


def decode(text: str) -> Any:
    """Parse the JSON *text*, so that `spell_numbers` can encode its numbers with all their digits.

    Raises:
        ValueError: *text* is not JSON.
    """
    return _DECODER.decode(text)


def _significant(number: str) -> str:
    """Return the digits of a number, without the zeros at both ends."""
    plain = number.lower().partition("e")[0]
    return plain.lstrip("-").replace(".", "").strip("0")


def spell_numbers(data: object, encoder: json.JSONEncoder) -> str:
    """Encode *data* as JSON, with all digits of each `LongNumber`.

    Raises:
        ValueError: a number is outside the range of JSON.
    """
    text = encoder.encode(data)
    if not LongNumber.seen:
        return text
    mark = _MARK * (1 + max(map(len, re.findall(f"{_MARK}+", text)), default=0))
    marked = _mark(data, mark)
    return re.sub(rf'"{mark}([^"]*)"', r"\1", encoder.encode(marked)) if marked != data else text


def to_ascii_json(value: object) -> str:
    """Encode *value* as JSON, with all digits of its numbers, and escapes instead of non-ASCII."""
    return spell_numbers(value, _ASCII_ENCODER)


def _mark(data: object, mark: str) -> object:
    if isinstance(data, LongNumber):
        return f"{mark}{data.text}"
    if isinstance(data, dict):
        return {key: _mark(value, mark) for key, value in data.items()}
    return [_mark(each, mark) for each in data] if isinstance(data, list) else data


class Canonical(str):
    """A JSON text that `_encode` need not change, because `_encode` would spell it the same."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """The fields of an operation that filters use.

    *changed* is used only for listeners (clients of Triton's protocol); it is empty otherwise.
    """

    event: str
    type: str
    id: str
    parents: tuple[str, ...]
    changed: tuple[str, ...] = ()


def event_of(line: str) -> str:
    return line[_EVENT_AT : _EVENT_AT + 6]


def data_of(line: str) -> str:
    """Return the operation as JSON without its event name, as in the `data` of an SSE event."""
    return "{" + line[_DATA_AT:]


def as_event(line: str, event: str) -> str:
    """Return *line* with its event name replaced by *event*."""
    return f'{{"event":"{event}",{line[_DATA_AT:]}'


def parse_line(line: str) -> Operation:
    """Parse a line of the log or of a row.

    Raises:
        StorageFailed: the stored line was changed by the disk.
    """
    try:
        fields = json.loads(line)
        return Operation(fields["event"], fields["type"], fields["id"], tuple(fields["parents"]))
    except (ValueError, LookupError, TypeError):  # their messages contain data
        raise StorageFailed(STORAGE_DAMAGED, "an operation or object") from None


def line_from(raw: object, *, now_ms: int, where: str = "") -> str:
    """Return the line of the log for *raw*, a decoded JSON value that a producer sent.

    *where* is the prefix of field names in error messages, such as `ops[3].`. Unknown keys are
    ignored.

    Raises:
        InvalidOperation: a field is missing or breaks its rule.
        TooLarge: a field or the line is longer than `limits` allows.
    """
    if not isinstance(raw, dict):
        raise InvalidOperation("must be a JSON object", field=where.rstrip(".: "), value=raw)
    get = _known_fields(raw).get
    return build_line(
        get("event"),
        get("type", MISSING),
        get("id", MISSING),
        get("timestamp"),
        get("parents"),
        (get("tags"), get("changed"), get("data")),
        now_ms,
        where,
    )


def build_line(
    event: object,
    type_: object,
    id_: object,
    timestamp: object,
    parents: object,
    extras: tuple[object, object, object],
    now_ms: int,
    where: str,
) -> str:
    """Return the line of the log for the values of an operation's fields.

    A field that was not sent is None, but *type_* and *id_* are then `MISSING`. *extras* are the
    fields tags, changed and data.

    Raises:
        InvalidOperation, TooLarge: see `line_from`.
    """
    line = (
        f'{{"event":"{_event(event, where)}","timestamp":"{_timestamp(timestamp, now_ms, where)}",'
        f'"parents":{_array(parents, "parents", limits.PARENTS_MAX, where)},'
        f'"type":{_quoted(_type(type_, where))},'
        f'"id":{_quoted(_name(id_, "id", limits.ID_BYTES_MAX, where))}{_extras(extras, where)}}}'
    )
    if not line.isascii():
        line = without_breaks(line)
        if SURROGATE.search(line):  # the names were checked, so the surrogate is in the data
            raise InvalidOperation("must not contain a lone surrogate", field=f"{where}data")
    size = len(line) if line.isascii() else len(line.encode())
    if size > limits.OPERATION_BYTES_MAX:
        rule = f"one operation holds at most {limits.OPERATION_BYTES_MAX} bytes, this one {size}"
        raise TooLarge(rule, field=where.rstrip(".: "), value=id_)
    return line


def plain_line(
    event: str, type_: str, id_: str, parents: list[str] | None, now_ms: int
) -> str | None:
    """Return the line of an operation without other fields, as `build_line` does.

    Return None unless all values certainly are valid, and need no escape. They are checked at once,
    which takes a tenth of the time.
    """
    names = [type_, id_] if parents is None else [type_, id_, *parents]
    joined = '","'.join(names)
    if (
        event not in EVENTS
        or not (joined.isascii() and joined.isprintable())
        or "\\" in joined
        or joined.count('"') != 2 * (len(names) - 1)
        or "" in names
        or len(joined) > PLAIN_BYTES_MAX
        or len(names) > limits.PARENTS_MAX
    ):
        return None
    listed = '["' + '","'.join(parents) + '"]' if parents else "[]"
    return (
        f'{{"event":"{event}","timestamp":"{timestamps.from_ms(now_ms)}","parents":{listed},'
        f'"type":"{type_.lower()}","id":"{id_}"}}'
    )


FIELDS = frozenset({"event", "timestamp", "parents", "type", "id", "tags", "changed", "data"})
MISSING = object()  # the value of a required field that was not sent
_NO_EXTRAS = (None, None, None)


def _known_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the known fields of *raw*.

    The case of names is ignored, and the last of several equal names counts. Producers that were
    written for oplog rely on this.
    """
    if raw.keys() <= FIELDS:
        return raw
    return {key.lower(): value for key, value in raw.items() if key.lower() in FIELDS}


def lower_case(text: str) -> str:
    """Return *text* in lower case, converted letter by letter as oplog does.

    The result of `str.lower` depends on the letters next to a sigma, and has two letters for a
    dotted capital I.
    """
    if text.isascii():
        return text.lower()
    return "".join("i" if letter == "\u0130" else letter.lower() for letter in text)


def _event(event: object, where: str) -> str:
    if isinstance(event, str) and (name := event.lower()) in EVENTS:
        return name
    rule = f"must be one of {', '.join(EVENTS)}"
    raise InvalidOperation(rule, field=f"{where}event", value=event)


def _timestamp(given: object, now_ms: int, where: str) -> str:
    if given is None:
        return timestamps.from_ms(now_ms)
    if not isinstance(given, str):
        rule = "must be an RFC 3339 date-time"
        raise InvalidOperation(rule, field=f"{where}timestamp", value=given)
    try:
        return timestamps.normal_form(given)
    except ValueError as error:
        rule = f"must be an RFC 3339 date-time ({error})"
        raise InvalidOperation(rule, field=f"{where}timestamp", value=given) from None


def _name(value: object, field: str, bytes_max: int, where: str) -> str:
    if _is_plain(value, bytes_max):
        return value
    if value is MISSING:
        raise InvalidOperation("is required", field=f"{where}{field}")
    return check_text(value, f"{where}{field}", bytes_max)


def _type(value: object, where: str) -> str:
    """Return the type in lower case. Its size is checked again, because it may have grown."""
    given = _name(value, "type", limits.TYPE_BYTES_MAX, where)
    if given.isascii():
        return given.lower()
    return check_text(lower_case(given), f"{where}type", limits.TYPE_BYTES_MAX)


def _array(given: object, field: str, count_max: int, where: str) -> str:
    """Return *given*, an array of names, as JSON."""
    if given is None:
        return "[]"
    if not isinstance(given, list):
        rule = "must be an array of strings"
        raise InvalidOperation(rule, field=f"{where}{field}", value=given)
    if len(given) > count_max:
        rule = f"holds at most {count_max} entries, got {len(given)}"
        raise TooLarge(rule, field=f"{where}{field}")
    plain = _plain_array(given)
    if plain is not None:
        return plain
    texts = [
        check_text(value, f"{where}{field}[{at}]", limits.PARENT_BYTES_MAX)
        for at, value in enumerate(given)
    ]
    return f"[{','.join(map(_quoted, texts))}]"


def _plain_array(given: list[Any]) -> str | None:
    """Return *given* as JSON if each entry certainly passes `check_text`.

    Otherwise return None, for example if an entry contains a character that JSON escapes. All
    entries are joined and checked at once, which is faster than checking each.
    """
    try:
        joined = '","'.join(given)
    except TypeError:
        return None
    is_plain = (
        len(joined) <= limits.PARENT_BYTES_MAX
        and joined.isascii()
        and joined.isprintable()
        and "\\" not in joined
        and joined.count('"') == 2 * (len(given) - 1)
        and "" not in given
    )
    return f'["{joined}"]' if is_plain else None


def _extras(extras: tuple[object, object, object], where: str) -> str:
    """Encode the fields tags, changed and data as JSON; leave out fields that are None."""
    if extras == _NO_EXTRAS:
        return ""
    tags, changed, data = extras
    text = ""
    for field, given in (("tags", tags), ("changed", changed)):
        if given is not None:
            text += f',"{field}":{_array(given, field, limits.TAGS_MAX, where)}'
    return text if data is None else f'{text},"data":{_encode(data, where)}'


def _is_plain(value: object, bytes_max: int) -> TypeGuard[str]:
    """Return True if *value* certainly passes the slower `check_text`, as most names do."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= bytes_max
        and value.isascii()
        and "\0" not in value
    )


def check_text(value: object, field: str, bytes_max: int) -> str:
    """Return *value* if it is a non-empty string that every store can hold.

    Raises:
        InvalidOperation: *value* is not a string, is empty, or has a NUL or a lone surrogate.
        TooLarge: *value* is longer than *bytes_max* in UTF-8.
    """
    if not isinstance(value, str):
        raise InvalidOperation("must be a string", field=field, value=value)
    if not value:
        raise InvalidOperation("must not be empty", field=field, value=value)
    if "\0" in value:
        raise InvalidOperation("must not contain U+0000", field=field, value=value)
    if SURROGATE.search(value):
        raise InvalidOperation("must not contain a lone surrogate", field=field, value=value)
    size = len(value.encode())
    if size > bytes_max:
        raise TooLarge(f"holds at most {bytes_max} bytes, got {size}", field=field, value=value)
    return value


def to_canonical_json(value: object) -> str:
    """Encode *value* as JSON in the way of the log: equal strings are spelled equally, in one line.

    Raises:
        ValueError: a number is outside the range of JSON.
    """
    return without_breaks(spell_numbers(value, _ENCODER))


def without_breaks(text: str) -> str:
    """Escape the characters in the JSON *text* that some SSE clients treat as line breaks."""
    return _BREAK.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _encode(data: object, where: str) -> str:
    if isinstance(data, Canonical):
        return data
    try:
        return spell_numbers(data, _ENCODER)
    except ValueError:
        rule = "must not hold a number beyond the range of a double"
        raise InvalidOperation(rule, field=f"{where}data") from None


# This pattern matches a line of `line_from` if the type, the id, the parents and the tags have no
# character that is escaped in JSON, and the type has no character that `type_prefix` escapes.
_ORDINARY = re.compile(
    r'\{"event":"\w{6}","timestamp":"[^"\\]*","parents":\[((?:"[^"\\]*",?)*)\],'
    r'"type":"([^"\\/%]+)","id":"([^"\\]+)"(?:,"tags":\[((?:"[^"\\]*",?)*)\]|(?!,"tags":))[,}]'
)


def object_key(operation: Operation) -> str:
    """Return the key of the operation's object. The first `/` in the key is the end of the type."""
    return f"{type_prefix(operation.type)}{operation.id}"


def key_of(line: str) -> str:
    """Return the `object_key` of the operation *line*, in most cases without a JSON parser."""
    match = _ORDINARY.match(line)
    return f"{match[2]}/{match[3]}" if match else object_key(parse_line(line))


def operation_of(line: str) -> Operation:
    """Return the same as `parse_line`, in most cases without a JSON parser."""
    match = _ORDINARY.match(line)
    if match is None:
        return parse_line(line)
    parents = tuple(match[1][1:-1].split('","')) if match[1] else ()
    return Operation(event_of(line), match[2], match[3], parents)


def parse_names(line: str) -> tuple[str, Sequence[str]]:
    """Return the `key_of` *line*, and its parents and tags."""
    match = _ORDINARY.match(line)
    if match:
        texts = (text[1:-1].split('","') for text in (match[1], match[4]) if text)
        return f"{match[2]}/{match[3]}", [*chain.from_iterable(texts)]
    fields = json.loads(line)
    operation = Operation("", fields["type"], fields["id"], ())
    return object_key(operation), [*fields["parents"], *fields.get("tags", ())]


def type_prefix(name: str) -> str:
    """Return the prefix of the keys of all objects of type *name*. No other keys have it."""
    return name.replace("%", "%25").replace("/", "%2F") + "/"


def seek(types: Iterable[str] | None, key: str) -> str | None:
    """Return the place after *key* from which keys of *types* follow: *key* or a type's prefix.

    If *types* is None, all keys follow *key*. Return None if no key of *types* can follow.
    """
    if types is None:
        return key
    prefixes = sorted(map(type_prefix, types))
    return next((max(each, key) for each in prefixes if key < each or key.startswith(each)), None)


MARK = "change"
MARKED = f',"{MARK}":true}}'


def is_change(line: str) -> bool:
    """Return True if *line* is a change without an object, as changeagent's clients post it.

    Such a line ends with a mark after the data, where no operation of a client can have it.
    """
    return line.endswith(MARKED)


# The marks at the end of the entry that records an erasure, and of an entry that was erased. As
# with `MARKED`, no operation of a client can end like this.
ERASURE_MARK = ',"erase":true}'
ERASED_MARK = ',"erased":true}'
WITHOUT_OBJECT = (MARKED, ERASED_MARK)
_BEFORE_DATA = ',"data":'


def is_erasure(line: str) -> bool:
    """Return True if *line* is the entry that records an erasure: a deletion, with details."""
    return line.endswith(ERASURE_MARK)


def begins_with_erasure(text: str) -> bool:
    """Return True if the page with *text* has an erasure entry.

    Such an entry is always the first of its page (`erasure.service`).
    """
    if event_of(text) != "delete":  # as for most pages
        return False
    end = text.find("\n")
    return text.endswith(ERASURE_MARK, 0, len(text) if end < 0 else end)


def is_erased(line: str) -> bool:
    """Return True if the content of *line* was removed by an erasure."""
    return line.endswith(ERASED_MARK)


def without_details(line: str) -> str:
    """Return *line* without the details of an erasure; return any other line unchanged."""
    if not is_erasure(line):
        return line
    # The names before the data cannot contain this text, because their quotes are escaped.
    return f"{line[: line.index(_BEFORE_DATA)]}}}"


def has_object(line: str) -> bool:
    """Return True if *line* is an operation of an object: neither a change nor an erased entry."""
    return not line.endswith(WITHOUT_OBJECT)


def quoted(text: str) -> str:
    """Return *text* as a JSON string, spelled as in the lines of the log."""
    return without_breaks(_quoted(text))
