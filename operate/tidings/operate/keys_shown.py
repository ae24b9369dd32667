"""What may be shown of a key: everything but what would help to guess it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidings.core import limits
from tidings.core.auth.keys import Key
from tidings.core.model.timestamps import from_ms

HEADINGS = ("id", "state", "roles", "bound", "until", "rate", "by", "label")
_WIDTHS = (12, 8, 18, 28, 20, 6, 12, 0)


def state(key: Key, now_ms: int) -> str:
    if key.revoked_ms:
        return "revoked"
    return "expired" if 0 < key.expires_ms <= now_ms else "holds"


def as_json(feed: str, key: Key, now_ms: int) -> dict[str, object]:
    return {
        "feed": feed,
        "id": key.id,
        "state": state(key, now_ms),
        "roles": _roles(key),
        "types": _sorted(key.bound.types),
        "parents": _sorted(key.bound.parents),
        "expires_at": from_ms(key.expires_ms) if key.expires_ms else None,
        "rate": key.rate or None,
        "streams": key.streams or limits.KEY_STREAMS,
        "label": key.label,
        "made_at": from_ms(key.made_ms),
        "made_by": key.made_by,
        "revoked_at": from_ms(key.revoked_ms) if key.revoked_ms else None,
        "successor": key.successor or None,
    }


def as_lines(feed: str, key: Key, now_ms: int) -> list[str]:
    """The same for a person."""
    rows = [
        ("feed", feed),
        ("id", key.id),
        ("state", state(key, now_ms)),
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
    """A line a key; the first one says what stands in them."""
    yield _line(HEADINGS)
    for key in keys:
        until = from_ms(key.ended_ms) if key.ended_ms else ""
        rate = str(key.rate or "")
        roles = ",".join(_roles(key))
        yield _line(
            (key.id, state(key, now_ms), roles, _bound(key), until, rate, key.made_by, key.label)
        )


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


def _sorted(values: frozenset[str] | None) -> list[str] | None:
    return None if values is None else sorted(values)
