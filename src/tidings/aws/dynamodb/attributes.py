"""Convert values to attributes and items in the format of DynamoDB's API, and back.

In this format, a number is a string.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Item = dict[str, Any]
Value = dict[str, Any]
Kind = TypeVar("Kind")


def text(value: str) -> Value:
    return {"S": value}


def number(value: int) -> Value:
    return {"N": str(value)}


def text_of(item: Mapping[str, Any], name: str) -> str:
    """Return the text under *name*; "" if the attribute is missing."""
    value = item.get(name)
    return value["S"] if value else ""


def number_of(item: Mapping[str, Any], name: str) -> int:
    """Return the number under *name*; 0 if the attribute is missing."""
    value = item.get(name)
    return int(value["N"]) if value else 0


def texts(values: Sequence[str]) -> Value:
    return {"L": [text(value) for value in values]}


def texts_of(item: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """Return the texts under *name*; None if the attribute is missing."""
    values = item.get(name)
    return tuple(value["S"] for value in values["L"]) if values else None


def without_empty(values: Mapping[str, str]) -> Item:
    """Return the texts of *values* as attributes, without those that are empty."""
    return {name: text(value) for name, value in values.items() if value}


def body(value: str | bytes) -> Value:
    """Return the attribute for a body, which is text, or binary if it is deflated."""
    return text(value) if isinstance(value, str) else {"B": value}


def body_of(value: Mapping[str, Any]) -> str | bytes:
    if "S" in value:
        inflated: str = value["S"]
        return inflated
    return bytes_of(value)


def bytes_of(value: Mapping[str, Any]) -> bytes:
    # With `clients.read_items_raw`, the answer has binary values as base64.
    packed: str | bytes = value["B"]
    return a2b_base64(packed) if isinstance(packed, str) else packed


def to_attribute(value: Any) -> Value:
    """Return a value of JSON as an attribute."""
    match value:
        case bool():
            return {"BOOL": value}
        case int():
            return number(value)
        case str():
            return text(value)
        case list():
            return {"L": [to_attribute(each) for each in value]}
    return {"M": {name: to_attribute(each) for name, each in value.items()}}


def plain(attribute: Mapping[str, Any]) -> Any:
    """Return the value of JSON that was passed to `to_attribute`."""
    ((kind, value),) = attribute.items()
    match kind:
        case "N":
            return int(value)
        case "L":
            return [plain(each) for each in value]
        case "M":
            return {name: plain(each) for name, each in value.items()}
    return value


def seconds(ms: int) -> int:
    """Return *ms* as whole seconds, rounded up."""
    return -(-ms // 1000)


def expiry(ms: int) -> Item:
    """Return the TTL attribute for the time *ms*; no attribute for 0, which means never."""
    return {"expires": number(seconds(ms))} if ms else {}


def expiry_ms(item: Mapping[str, Any]) -> int:
    return number_of(item, "expires") * 1000


class Codec:
    """The conversion of a field to an attribute, by *write*, and back, by *read*.

    *absent* is the value of the field if the attribute is missing. If *is_sparse* is True, this
    value is not written. *field* is the name of the field; "" if the attribute has the same name.
    """

    def __init__(
        self,
        write: Callable[[Any], Value],
        read: Callable[[Any], Any],
        absent: object = None,
        *,
        is_sparse: bool = False,
        field: str = "",
    ) -> None:
        self.write, self.read, self.absent = write, read, absent
        self.is_sparse, self.field = is_sparse, field

    def of(self, field: str) -> Codec:
        """Return this codec for a field with the name *field*."""
        return Codec(self.write, self.read, self.absent, is_sparse=self.is_sparse, field=field)

    @property
    def sparse(self) -> Codec:
        return Codec(self.write, self.read, self.absent, is_sparse=True, field=self.field)


class Layout(Generic[Kind]):
    """The fields of values of one kind, by the names of their attributes."""

    def __init__(self, make: Callable[..., Kind], /, **codecs: Codec) -> None:
        self._make = make
        self._codecs = [(name, each.field or name, each) for name, each in codecs.items()]

    def encode(self, value: Kind) -> Item:
        item = {}
        for name, field, codec in self._codecs:
            content = getattr(value, field)
            if not codec.is_sparse or content != codec.absent:
                item[name] = codec.write(content)
        return item

    def decode(self, item: Mapping[str, Any], /, **others: Any) -> Kind:
        """Return the value in *item*. *others* are the fields of the value without an attribute."""
        for name, field, codec in self._codecs:
            others[field] = codec.read(item[name]) if name in item else codec.absent
        return self._make(**others)


def as_text(write: Callable[[Any], str], read: Callable[[str], Any], absent: Any = None) -> Codec:
    """Return the codec of a field that is stored as text."""
    return Codec(lambda value: text(write(value)), lambda value: read(value["S"]), absent)


TEXT = Codec(text, lambda value: value["S"], "")
NUMBER = Codec(number, lambda value: int(value["N"]), 0)
BINARY = Codec(lambda value: {"B": value}, bytes_of, b"", is_sparse=True)
FLAG = Codec(lambda value: {"BOOL": value}, lambda value: value["BOOL"], absent=False)


def head_key(feed: str) -> Item:
    """Return the key of the item in the control table that counts the pages of *feed*."""
    return {"kind": text(f"head#{feed}"), "name": text("-")}


def decode_head(item: Item) -> int:
    """Return the head in *item*; 0 if *item* is empty."""
    return number_of(item, "page")
