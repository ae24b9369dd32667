"""Reading a table: its chunks, some of its rows, and what cannot be compared."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tidings.sync import postgres
from tidings.sync.postgres import BadTable, Mapping, PostgresTable

LARGE = 70_000  # bytes: more than an operation holds


def do(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn) as connection:
        for statement in statements:
            connection.execute(statement)


def opened(dsn: str, table: str, **mapping: Any) -> PostgresTable:
    return PostgresTable(dsn, table, Mapping(**mapping))


def all_of(table: PostgresTable, most: int) -> dict[str, dict[str, Any]]:
    """Return every row, read in chunks of *most*."""
    rows: dict[str, str] = {}
    place = None
    while (chunk := table.chunk(place, most)) is not None:
        assert len(chunk.rows) <= most
        assert not rows.keys() & chunk.rows.keys()
        rows |= chunk.rows
        place = json.loads(json.dumps(chunk.end))
    return {id: json.loads(line) for id, line in rows.items()}


@pytest.mark.parametrize("kind", ["smallint", "integer", "bigint", "text", "varchar(50)", "uuid"])
def test_chunks_hold_each_row_once(database: str, table: str, kind: str) -> None:
    """Chunks follow the order of the key, of any type; single rows are found by their ids."""
    value = "md5(n::text)::uuid" if kind == "uuid" else f"n::{kind}"
    do(
        database,
        f"CREATE TABLE {table} (id {kind} PRIMARY KEY)",
        f"INSERT INTO {table} SELECT {value} FROM generate_series(-5, 15) AS n",
    )
    source = opened(database, table, type="Video")
    rows = all_of(source, 4)
    assert len(rows) == 21
    assert {each["type"] for each in rows.values()} == {"video"}
    some = sorted(rows)[:3]
    found = source.find([*some, "none", "01", "+1", "", "٣", "x/y", str(10**30)])
    assert sorted(found) == some
    assert source.find(["none"]) == {}
    source.close()


def test_a_key_of_several_columns(database: str, table: str) -> None:
    """Different keys are different objects, whatever slashes they contain."""
    do(
        database,
        f"CREATE TABLE {table} (a text, n int, b text, PRIMARY KEY (a, n, b))",
        f"INSERT INTO {table} VALUES ('x/y', 1, 'z'), ('x', 1, 'y/1/z'), ('x%2Fy', 1, 'z')",
    )
    source = opened(database, table)
    ids = ["x%252Fy/1/z", "x%2Fy/1/z", "x/1/y%2F1%2Fz"]
    assert sorted(all_of(source, 2)) == ids
    assert sorted(source.find([*ids, "x/1", "x/one/y", "x/y/1/z", "x%2fy/1/z", "x%/1/z"])) == ids
    source.close()


def test_two_rows_of_one_id_are_refused(database: str, table: str) -> None:
    """A key that is not unique does not identify an object."""
    do(
        database,
        f"CREATE TABLE {table} (a text, b text, PRIMARY KEY (a, b))",
        f"INSERT INTO {table} VALUES ('x', 'y'), ('x', 'z')",
    )
    source = PostgresTable(database, table, Mapping(key=("a",)))
    with pytest.raises(BadTable, match="two rows have the key x"):
        source.find(["x"])
    source.close()


def test_what_of_a_row_is_told(database: str, table: str) -> None:
    """Time and parents come from their columns, all columns are data; null gives no time or
    parents."""
    do(
        database,
        f"CREATE TABLE {table} (id int PRIMARY KEY, at timestamptz, above text[], title text)",
        f"INSERT INTO {table} VALUES (1, '2026-01-02 03:04:05.678+02', '{{channel/7}}', 'one'),"
        " (2, null, null, null)",
    )
    source = opened(database, table, changed="at", parents="above")
    assert all_of(source, 9) == {
        "1": {
            "event": "insert",
            "timestamp": "2026-01-02T01:04:05.678Z",
            "parents": ["channel/7"],
            "type": table,
            "id": "1",
        },
        "2": {
            "event": "insert",
            "timestamp": "0001-01-01T00:00:00Z",
            "parents": [],
            "type": table,
            "id": "2",
        },
    }
    source.close()
    whole = opened(database, table, data=True)
    assert all_of(whole, 9)["2"]["data"] == {"id": 2, "at": None, "above": None, "title": None}
    whole.close()


def test_a_view_has_the_key_that_is_named(database: str, table: str) -> None:
    """A view can provide any field of an operation."""
    do(
        database,
        f"CREATE TABLE {table} (id int PRIMARY KEY, channel int)",
        f"INSERT INTO {table} VALUES (1, 7), (2, 8)",
        f"CREATE VIEW {table}_told AS SELECT id, ARRAY['channel/' || channel] AS above"
        f" FROM {table} WHERE channel < 8",
    )
    source = opened(database, f"{table}_told", type="video", key=("id",), parents="above")
    assert {id: each["parents"] for id, each in all_of(source, 9).items()} == {"1": ["channel/7"]}
    assert source.find(["2"]) == {}
    source.close()


@pytest.mark.parametrize(
    ("columns", "mapping", "said"),
    [
        ("id int", {}, "has no primary key; name unique columns with --key"),
        ("id int PRIMARY KEY", {"key": ("no",)}, "has no column 'no'; the columns are id"),
        ("id numeric PRIMARY KEY", {}, "id must have one of the types smallint, .* type numeric"),
        ("id int PRIMARY KEY, at timestamp", {"changed": "at"}, "at must have .* with time zone"),
        ("id int PRIMARY KEY, up text", {"parents": "up"}, r"up must have .* text\[\]"),
    ],
)
def test_what_cannot_be_compared_is_named(
    database: str, table: str, columns: str, mapping: dict[str, Any], said: str
) -> None:
    """No row is read before that."""
    do(database, f"CREATE TABLE {table} ({columns})")
    with pytest.raises(BadTable, match=said):
        opened(database, table, **mapping)


def test_what_is_no_table(database: str, table: str) -> None:
    """The table is missing, its name is invalid, or its rows may be out of date."""
    with pytest.raises(BadTable, match="nothing has this name"):
        opened(database, table)
    with pytest.raises(BadTable, match="table must be"):
        opened(database, "a; b")
    do(database, f"CREATE MATERIALIZED VIEW {table} AS SELECT 1 AS id")
    with pytest.raises(BadTable, match="its rows may be outdated"):
        opened(database, table, key=("id",))


def test_a_row_that_is_no_operation_is_named(database: str, table: str) -> None:
    """It holds more than an operation may, or its key is empty."""
    do(
        database,
        f"CREATE TABLE {table} (id text PRIMARY KEY, title text)",
        f"INSERT INTO {table} VALUES ('big', repeat('x', {LARGE}))",
    )
    source = opened(database, table, data=True)
    with pytest.raises(BadTable, match=r"the row big: .*one operation holds at most"):
        source.chunk(None, 9)
    source.close()


def test_rows_that_are_hidden_are_not_taken_for_deleted(database: str, table: str) -> None:
    """If a policy hides rows from this user, the server refuses the query."""
    do(
        database,
        f"CREATE TABLE {table} (id int PRIMARY KEY)",
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"CREATE ROLE {table}_reader LOGIN",
        f"GRANT SELECT ON {table} TO {table}_reader",
        f"CREATE POLICY none ON {table} USING (id < 0)",
    )
    source = opened(database.replace("user=tidings", f"user={table}_reader"), table)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        source.chunk(None, 9)
    source.close()


def test_a_connection_that_is_lost_is_made_again(
    database: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query may be asked twice; one that is too slow is not asked again."""
    monkeypatch.setattr(postgres, "sleep", lambda s: None)
    do(database, f"CREATE TABLE {table} (id int PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    source = opened(database, table)
    do(
        database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'",
    )
    assert list(all_of(source, 9)) == ["1"]
    source.close()
