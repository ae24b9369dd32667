"""How a PostgreSQL is named to a person."""

from __future__ import annotations

from urllib.parse import urlsplit

_SHOWN = ("host", "port", "dbname")


def without_secrets(dsn: str) -> str:
    """Host and database of *dsn*."""
    if "://" in dsn:
        parts = urlsplit(dsn)
        return f"{parts.hostname or 'local'}{parts.path}"
    return " ".join(each for each in dsn.split() if each.split("=")[0] in _SHOWN) or "local"
