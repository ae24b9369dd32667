"""The tables as engines other than Spark read them: PyIceberg, and DuckDB on top of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.table import StaticTable

from tests.unit.lake.parts import Entry, Scene, fold
from tidings.core.model import cursors
from tidings.core.model.cursors import Place
from tidings.lake import warehouse

KINDS = ("main_history", "main_latest", "main_type_video")


def arrow(scene: Scene, table: str) -> pa.Table:
    """Return the rows of *table* as PyIceberg reads them, with its deletes; empty if it is
    missing."""
    try:
        at = warehouse.metadata_file(scene.warehouse, table)
    except FileNotFoundError:
        return pa.table({name: [] for name in ("page", "slot", "line", "id", "n")})
    return StaticTable.from_metadata(str(at)).scan().to_arrow()


def asked(scene: Scene, table: str, sql: str) -> list[tuple[Any, ...]]:
    """Return DuckDB's answer, with the table as `t`."""
    with duckdb.connect() as connection:
        connection.register("t", arrow(scene, table))
        return connection.execute(sql).fetchall()


def tables(scene: Scene) -> tuple[list[Entry], list[Entry], list[tuple[str, int]]]:
    """Return `history`, `latest` and the videos, as PyIceberg reads them."""
    history, latest, videos = (arrow(scene, table) for table in KINDS)
    rows = zip(videos["id"].to_pylist(), videos["n"].to_pylist(), strict=True)
    return _entries(history), _entries(latest), sorted(rows)


def places(scene: Scene) -> dict[str, int]:
    """Return the page that each table says it reaches."""
    found = {table: warehouse.read_metadata(scene.warehouse, table) for table in KINDS}
    return {name: _page(each.through if each else "") for name, each in found.items()}


def living(found: Sequence[Entry]) -> list[tuple[str, int]]:
    """Return the objects of *found* as the table of videos has them."""
    operations = [json.loads(each[2]) for each in fold(found)]
    return sorted(
        (each["id"], each["data"]["n"]) for each in operations if each["event"] != "delete"
    )


def _entries(table: pa.Table) -> list[Entry]:
    rows = (table[name].to_pylist() for name in ("page", "slot", "line"))
    return sorted(zip(*rows, strict=True))


def _page(through: str) -> int:
    place = cursors.parse(through)
    return place.page if isinstance(place, Place) else 0
