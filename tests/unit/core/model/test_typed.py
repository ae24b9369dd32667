"""The compiled parser of ordinary operations agrees with the rules in Python on every body.

AGREEMENT_BODIES asks for more generated ones (`make fuzz`).
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

from tests.unit.core.model.agreement import is_ordinary, lines_from
from tests.unit.core.scene import NOW, op
from tidings.core import limits
from tidings.core.errors import Rejected
from tidings.core.model.json_body import JSON_TYPE, NDJSON_TYPE

T = TypeVar("T")
BODIES, PARTS = int(os.environ.get("AGREEMENT_BODIES", "4000")), 4
NAMES = (
    *("x", "video", "A/b%", "user/ann", "\u00e9", "\u03a3\u03c2", "\u0130", "\U0001f600", "a b"),
    *("", "\0", "\x7f", "\u2028", "\u0085", '"', "\\", '","', "/", "\n", "\ud800", "\ufffd"),
    *("a" * 128, "a" * 129, "a" * 512, "a" * 513, "\u00e9" * 320, "a" * 640, "a" * 641),
)
NUMBERS = (
    *("0", "1", "-1", "-0", "01", "+1", "1.", ".5", "1.5", "-0.0", "1.50", "0.1", "1e5", "1E5"),
    *("1e16", "1e+16", "1e-7", "1e-07", "1e22", "1e999", "-1e999", "1e-999", "5e-324", "NaN"),
    *("Infinity", "9007199254740993", "9223372036854775808", "18446744073709551616", "1" * 40),
    *("0.30000000000000004", "0.1234567890123456789", "123456789012345.6", "1" * 4400, "-"),
)
TIMES = (
    *("2026-11-20T17:19:10.94Z", "2026-11-20T17:19:10Z", "2026-11-20T17:19:10.940Z"),
    *("2026-02-30T00:00:00Z", "2026-11-20t17:19:10+02:00", "2026-11-20", "", "0001-01-01T00:00Z"),
)
EVENTS = ("insert", "update", "delete", "Update", "DELETE", "upsert", "")


class Bodies:
    """Generates bodies: mostly valid, some strange, some damaged."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def make(self) -> tuple[bytes, str]:
        pick = self._chance.random()
        count = self._chance.choice((1, 1, 1, 2, 3))
        found = [self._operation() for _ in range(count)]
        if pick < 0.4:
            body, kind = found[0], JSON_TYPE
        elif pick < 0.6:
            body, kind = f"{self._space()}[{','.join(found)}]{self._space()}", JSON_TYPE
        else:
            body, kind = (
                self._one_of(("\n", "\n", "\r\n", "\n\n", " ", "")).join(found),
                NDJSON_TYPE,
            )
        data = body.encode("utf-8", "surrogatepass")
        return (self._damaged(data) if self._chance.random() < 0.3 else data), kind

    def _operation(self) -> str:
        fields = [("event", self._text(self._usual(EVENTS, 3)))]
        fields += [(name, self._text(self._usual(NAMES, 4))) for name in ("type", "id")]
        if self._chance.random() < 0.7:
            fields.append(("parents", self._texts(66)))
        if self._chance.random() < 0.5:
            fields.append(("timestamp", self._text(self._usual(TIMES, 3))))
        for name in ("tags", "changed"):
            if self._chance.random() < 0.2:
                fields.append((name, self._texts(33)))
        if self._chance.random() < 0.6:
            fields.append(("data", self._value(0)))
        if self._chance.random() < 0.15:
            name = self._one_of(("type", "Type", "TAGS", "data", "other", "event", "id"))
            fields.append((name, self._value(3)))
        if self._chance.random() < 0.1:
            del fields[self._chance.randrange(len(fields))]
        self._chance.shuffle(fields)
        space = self._space()
        return (
            f"{{{','.join(f'{space}{self._text(name)}:{space}{text}' for name, text in fields)}}}"
        )

    def _value(self, depth: int) -> str:
        pick = self._chance.random()
        if pick < 0.3 and depth < 5:
            names = ("a", "b", "c", *NAMES[:6])
            fields = [(self._one_of(names), self._value(depth + 1)) for _ in range(self._few())]
            space = self._space()
            return f"{{{','.join(f'{self._text(name)}:{space}{each}' for name, each in fields)}}}"
        if pick < 0.5 and depth < 5:
            return f"[{','.join(self._value(depth + 1) for _ in range(self._few()))}]"
        if pick < 0.52:
            deep = self._chance.randrange(26, 36)
            return "[" * deep + "]" * deep
        if pick < 0.75:
            return self._usual(NUMBERS, 6)
        if pick < 0.8:
            return self._one_of(("true", "false", "null", "nul", '"a'))
        return self._text(self._usual(NAMES, 4))

    def _texts(self, most: int) -> str:
        if self._chance.random() < 0.1:
            return self._value(3)
        count = most - self._chance.randrange(3) if self._chance.random() < 0.05 else self._few()
        return f"[{','.join(self._text(self._usual(NAMES, 8)) for _ in range(count))}]"

    def _text(self, text: str) -> str:
        """Return *text* as JSON, with escapes that a producer may choose."""
        written = json.dumps(text, ensure_ascii=self._chance.random() < 0.5)
        if self._chance.random() < 0.05:
            written = written.replace("/", "\\/").replace("a", "\\u0061")
        return written

    def _damaged(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._few()):
            at = self._chance.randrange(len(changed) + 1)
            piece = self._one_of(
                (b"", b"\0", b"\xff", b"\xc3", b'"', b"{", b",", b"\n", b"\x0b", b"1")
            )
            changed[at : at + self._chance.randrange(2)] = piece
        return bytes(changed)

    def _usual(self, texts: Sequence[str], usual: int) -> str:
        """Return one of *texts*, mostly one of the first, which are valid."""
        return self._one_of(texts[:usual] if self._chance.random() < 0.85 else texts)

    def _one_of(self, values: Sequence[T]) -> T:
        return self._chance.choice(values)

    def _few(self) -> int:
        return self._chance.randrange(4)

    def _space(self) -> str:
        return self._chance.choice(("", "", "", " ", "\t", "\x0b"))


@pytest.mark.parametrize("part", range(PARTS))
def test_generated_bodies(part: int) -> None:
    """Accepted or rejected, ordinary or not: the generator makes enough of each."""
    bodies, accepted, ordinary = Bodies(part), 0, 0
    for _ in range(BODIES // PARTS):
        body, kind = bodies.make()
        try:
            lines_from(body, kind, now_ms=NOW)
            accepted += 1
            ordinary += is_ordinary(body, kind)
        except Rejected:
            assert not is_ordinary(body, kind), body

    assert BODIES // PARTS * 0.15 < ordinary < accepted < BODIES // PARTS * 0.8


@pytest.mark.parametrize("levels", range(limits.JSON_DEPTH_MAX - 3, limits.JSON_DEPTH_MAX + 1))
@pytest.mark.parametrize("kind", [JSON_TYPE, NDJSON_TYPE])
@pytest.mark.parametrize("form", ["%s", "[%s]"])
def test_the_deepest_data(levels: int, kind: str, form: str) -> None:
    """The operation and the array around it count."""
    text = json.dumps(op())[:-1] + ',"data":' + "[" * levels + "]" * levels + "}"
    try:
        assert lines_from((form % text).encode(), kind, now_ms=NOW)
    except Rejected:
        assert levels + 1 + len(form) // 4 > limits.JSON_DEPTH_MAX or (form, kind) == (
            "[%s]",
            NDJSON_TYPE,
        )


@pytest.mark.parametrize("data", [{}, {"a": [1, -2.5, None, True, "\u00e9\u2028"]}, "x", 0, [[]]])
def test_ordinary_operations(data: object) -> None:
    """Their data in short form too: what most producers send needs no second parser."""
    posted = {**op(), "tags": ["a"], "data": data}
    text = json.dumps(posted, ensure_ascii=False, separators=(",", ":")).encode()

    assert is_ordinary(text, JSON_TYPE) and is_ordinary(b"[%s]" % text, JSON_TYPE)
    assert is_ordinary(b"%s\n%s\n" % (text, text), NDJSON_TYPE)
    assert lines_from(text, JSON_TYPE, now_ms=NOW)


def test_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser is not installed in a stage's functions: the Python rules are used alone."""
    from tidings.core.model import json_body

    text = json.dumps(op()).encode()
    wanted = json_body.lines_from(text, JSON_TYPE, now_ms=NOW)
    monkeypatch.setattr(json_body, "compiled_parser", lambda: None)

    assert json_body.lines_from(text, JSON_TYPE, now_ms=NOW) == wanted
