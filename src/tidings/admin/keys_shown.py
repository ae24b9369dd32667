"""Pure functions that format keys for an operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidings.core import limits
from tidings.core.auth.keys import Key
from tidings.core.model.timestamps import from_ms
from tidings.http.endpoints.keys import key_state

HEADINGS = ("id", "state", "roles", "bound", "until", "rate", "by", "label")
_WIDTHS = (12, 8, 18, 28, 20, 6, 12, 0)


def as_lines(feed: str, key: Key, now_ms: int) -> list[str]:
    """Return the fields of a key as lines of text."""
    rows = [
        ("feed", feed),
        ("id", key.id),
        ("state", key_state(key, now_ms)),
        ("roles", ", ".join(_roles(key))),
        ("bound", _bound(key) or "none: all of the feed"),
        ("expires", from_ms(key.expires_ms) if key.expires_ms else "never"),
        ("rate", f"{key.rate} a second" if key.rate else "no bound"),
        ("streams", f"{key.streams or limits.KEY_STREAMS} at once"),
        ("made", f"{from_ms(key.made_ms)} by {key.made_by or 'nobody knows whom'}"),
    ]
    if key.label:
        rows.append(("label", key.label))
    if key.revoked_ms:
        rows.append(("revoked", from_ms(key.revoked_ms)))
    if key.successor:
        rows.append(("successor", key.successor))
    return [f"{name:<10} {value}" for name, value in rows]


def table(keys: Iterable[Key], now_ms: int) -> Iterator[str]:
    """Yield a line per key, after a line with the column names."""
    yield _line(HEADINGS)
    for key in keys:
        until = from_ms(key.ended_ms) if key.ended_ms else ""
        state, rate = key_state(key, now_ms), str(key.rate or "")
        roles = ",".join(_roles(key))
        yield _line((key.id, state, roles, _bound(key), until, rate, key.made_by, key.label))


def _line(cells: tuple[str, ...]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    return "  ".join(padded).rstrip()


def _roles(key: Key) -> list[str]:
    return sorted(role.value for role in key.roles)


def _bound(key: Key) -> str:
    named = {"types": key.bound.types, "parents": key.bound.parents}
    return " ".join(
        f"{name}={','.join(sorted(values))}" for name, values in named.items() if values is not None
    )
