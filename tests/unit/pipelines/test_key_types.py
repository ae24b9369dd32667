"""Keys of each type with random values: the log names the rows that queries find."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.unit.pipelines import test_mysql_tables, test_postgres_source
from tests.unit.pipelines.test_mysql_tables import table as mariadb_table
from tests.unit.pipelines.test_postgres_source import table as postgres_table
from tidings.pipelines import mysql, postgres

__all__ = ["mariadb_table", "postgres_table"]

Values = st.SearchStrategy[str]
ROWS = 12  # of each table


def integers(low: int, high: int) -> Values:
    return st.integers(low, high).map(str)


def signed(bits: int) -> Values:
    return integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def decimals(digits: int, scale: int) -> Values:
    most = 10 ** (digits - scale) - 1
    return st.decimals(-most, most, places=scale).map("{:f}".format)


def quoted(value: object) -> str:
    return "'" + str(value).replace("\\", "\\\\").replace("'", "''") + "'"


def texts(characters: str) -> Values:
    return st.text(characters, min_size=1, max_size=4).map(quoted)


def octets(low: int, high: int, form: str = "x'{}'") -> Values:
    """Return bytes, of which many are zero."""
    byte = st.sampled_from([0, 0, 0, 1, 0x20, 0x7F, 0x80, 0xFF])
    return st.lists(byte, min_size=low, max_size=high).map(lambda of: form.format(bytes(of).hex()))


def moments(first: str, last: str, digits: int) -> Values:
    return st.datetimes(*map(datetime.fromisoformat, (first, last))).map(
        lambda each: quoted(each.isoformat(" ", "microseconds")[: 20 + digits])
    )


def times(hours: int, digits: int) -> Values:
    parts = [st.integers(0, hours), st.integers(0, 59), st.integers(0, 59)]
    fraction = st.integers(0, 10**digits - 1)
    form = f"'{{}}{{:02}}:{{:02}}:{{:02}}.{{:0{digits or 1}}}'".format
    return st.tuples(st.sampled_from(["", "-"]), *parts, fraction).map(lambda each: form(*each))


def among(*values: str) -> Values:
    return st.sampled_from(values)


TEXT = "aA \u00e9\u20ac\U0001f600'\\/%\t"
MARIADB: dict[str, Values] = {
    "tinyint": signed(8),
    "smallint unsigned": integers(0, 2**16 - 1),
    "mediumint": signed(24),
    "mediumint unsigned": integers(0, 2**24 - 1),
    "int": signed(32),
    "bigint": signed(64),
    "bigint unsigned": integers(0, 2**64 - 1),
    "decimal(20,5)": decimals(20, 5),
    "decimal(65,30)": decimals(65, 30),
    "double": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "year": among("0", "1901", "2155"),
    "date": st.dates().map(quoted),
    "enum('a','b','c d')": among("'a'", "'b'", "'c d'"),
    "char(9) CHARACTER SET utf8mb4": texts(TEXT),
    "varchar(9) CHARACTER SET utf8mb4": texts(TEXT),
    "varchar(9) CHARACTER SET latin1": texts("aA \u00e9\u20ac\x81"),
    "varchar(9) CHARACTER SET sjis": among("'\u3042'", "'a'"),
    "varchar(9) CHARACTER SET hp8": texts("aA \u00e9"),
    "char(9) CHARACTER SET koi8u": texts("aA \u2022"),
    "binary(4)": octets(0, 4),
    "varbinary(9)": octets(0, 9),
    "char(4) CHARACTER SET binary": octets(0, 4),
    # The server does not find all values of other versions itself.
    "uuid": st.uuids(version=4).map(lambda of: quoted(f"{str(of)[:24]}{of.node >> 24 << 24:012x}")),
    **{f"time({digits})": times(838, digits) for digits in range(7)},
    **{f"datetime({n})": moments("1000-01-01", "9999-12-31 23:59:59", n) for n in (0, 1, 6)},
    **{f"timestamp({n})": moments("1970-01-01 00:00:01", "2038-01-19", n) for n in (0, 3, 6)},
}
JSON = [
    "null",
    '"null"',
    "1",
    '"1"',
    "true",
    '"True"',
    '{"a": null}',
    '["x", 1.10]',
    '"x"',
    "1e400",
]
TIMES = among("'infinity'", "'-infinity'", "'10000-01-01'", "'0044-03-15 BC'")
POSTGRES: dict[str, Values] = {
    "smallint": signed(16),
    "bigint": signed(64),
    "numeric": decimals(40, 15) | among("'NaN'", "'Infinity'", "1.10", "-0.000"),
    "real": st.floats(width=32).map(quoted),
    "double precision": st.floats().map(quoted),
    "money": decimals(17, 2),
    "boolean": among("true", "false"),
    "char(9)": texts(TEXT),
    "varchar(9)": texts(TEXT),
    "text": texts(TEXT),
    '"char"': among("'a'", "''"),
    "name": texts("aA b"),
    "citext": texts("aA \u00e9"),
    "bytea": octets(0, 9, r"'\x{}'"),
    "date": st.dates().map(quoted) | TIMES,
    "time": st.times().map(quoted) | among("'24:00:00'"),
    "timetz": st.times().map(lambda each: quoted(f"{each}-12:30")) | among("'24:00:00+05'"),
    "timestamp": moments("0001-01-01", "9999-12-31 23:59:59", 6) | TIMES,
    "timestamptz": moments("0001-01-01", "9999-12-31 23:59:59", 6) | TIMES,
    "interval": st.tuples(*[st.integers(-400, 400)] * 3).map(
        "'{0[0]} mon {0[1]} d {0[2]} s'".format
    )
    | among(
        "'1 year'", "'365 days'", "'360 days 1 us'", "'-178000000 years'", "'9 days 2:03:04.5'"
    ),
    "uuid": st.uuids().map(quoted),
    "inet": st.ip_addresses().map(quoted) | among("'10.0.0.1/8'"),
    "cidr": among("'10.0.0.0/8'", "'::/0'"),
    "macaddr": among("'08:00:2b:01:02:03'"),
    "bit(3)": among("B'101'", "B'000'"),
    "bit varying": among("B'1'", "B''", "B'10'"),
    "tsvector": among("'a b'", "''"),
    "pg_lsn": among("'16/B374D848'", "'0/0'"),
    "oid": integers(0, 2**32 - 1),
    "integer[]": among("'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'{}'", "'{1,2}'", "'[0:1]={1,2}'"),
    "text[]": among("""'{a,"b,c",NULL,""}'""", """'{"\\\\"}'"""),
    "bytea[]": among(r"""'{"\\x00ff"}'"""),
    "numeric[]": among("'{NaN,1.10}'"),
    "int4range": among("'[1,5)'", "'empty'", "'(,5)'"),
    "date[]": among("'{2026-01-02,infinity}'", "'{-infinity,10000-01-01}'", "'{0044-03-15 BC}'"),
    "timestamptz[]": among("'{infinity}'", "'{99999-01-01}'", "'{2026-01-01}'"),
    "interval[]": among("'{1 year}'", "'{365 days}'", "'{1 mon}'"),
    "daterange": among("'[2026-01-01,2026-01-02)'", "'empty'", "'[,infinity)'", "'[10000-01-01,)'"),
    "tsrange": among("'[2026-01-01,infinity]'", "'[0044-03-15 BC,10000-01-01)'"),
    "tstzrange": among("'[2026-01-01,)'", "'[-infinity,99999-01-01)'"),
    "numrange": among("'[1.10,NaN)'", "'(,1e40]'"),
    "datemultirange": among("'{[2026-01-01,2026-01-02),[10000-01-01,infinity)}'", "'{}'"),
    "jsonb": among(*map(quoted, JSON)),
    "jsonb[]": among("""ARRAY['{"a": 1}', 'null', '"x"']::jsonb[]"""),
    "pair": among("ROW(1, 'x,y')", "ROW(1, NULL)", "ROW(NULL, NULL)", "ROW(2, '')", "ROW(2, '\"')"),
    "paired": among("ROW(1, 'x')", "ROW(-1, '(')"),
    '"odd %s"': among("ROW('{1}', ROW(1, 'infinity'))", "ROW(NULL, NULL)"),
    "int4multirange": among("'{[1,3),[5,7)}'", "'{}'"),
    "mood": among("'sad'", "'ok'"),
    "domained": among("7", "8"),
    "words": among("'{a,\"b,c\"}'", "'{}'"),
    "mood[]": among("'{sad,ok}'", "'{}'"),
    "domained[]": among("'{1,NULL}'"),
    "citext[]": among("'{Abc,NULL}'"),
    "pair[]": among("""ARRAY[ROW(1, 'x,y')::pair]"""),
    "floats": among("'[1.5,2.5)'", "'empty'"),
}
TYPES = (
    'DROP TYPE IF EXISTS mood, pair, floats, "odd %s" CASCADE',
    "DROP DOMAIN IF EXISTS domained, words, paired CASCADE",
    "CREATE EXTENSION IF NOT EXISTS citext",
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN domained AS int CHECK (VALUE > 0)",
    "CREATE TYPE pair AS (n int, t text)",
    "CREATE DOMAIN paired AS pair",
    'CREATE TYPE "odd %s" AS (a int[], p pair)',
    "CREATE TYPE floats AS RANGE (subtype = float8)",
    "CREATE DOMAIN words AS text[]",
)

Database = test_mysql_tables.Database | test_postgres_source.Database
# The first example has the simplest values. A failure names the rows, so it is not made smaller.
random = settings(
    max_examples=3, suppress_health_check=list(HealthCheck), phases=[Phase.generate], database=None
)


def check_keys(
    table: Database, kinds: Mapping[str, Values], data: st.DataObject, once: str, *more: str
) -> None:
    """Copy random rows in several pages, change all columns, change one, and delete the rows.

    *once* ends an INSERT so that it leaves out rows with an existing key; *more* statements follow
    the creation of the table.
    """
    names = {kind: f"k{at}" for at, kind in enumerate(kinds)}
    columns = ", ".join(f"{name} {kind} NOT NULL" for kind, name in names.items())
    rows = data.draw(st.lists(st.tuples(*kinds.values()), min_size=ROWS, max_size=ROWS))
    values = ", ".join(f"({', '.join(row)}, 'copy', repeat('x', 9000), 0)" for row in rows)
    table.do(
        "DROP TABLE IF EXISTS {t}",
        f"CREATE TABLE {{t}} ({columns}, v text, large text, n int,"
        f" PRIMARY KEY ({', '.join(names.values())}))",
        *more,
        f"INSERT INTO {{t}} VALUES {values} {once}",
    )
    followed = table.follow()
    (count,) = table.do("SELECT count(*) FROM {t}")[0]
    copied = deepcopy(followed.objects)
    assert len(copied) == count
    for changed in ({"v": "log", "large": "y" * 9000}, {"n": 1}):
        table.do(f"UPDATE {{t}} SET {', '.join(f'{n} = {v!r}' for n, v in changed.items())}")
        for each in copied.values():
            each.update(changed)
        followed.until(lambda: followed.objects == copied)
    table.do("DELETE FROM {t}")
    followed.until_ids()


def groups(kinds: Mapping[str, Values], count: int) -> list[dict[str, Values]]:
    return [dict(list(kinds.items())[at::count]) for at in range(count)]


@pytest.mark.parametrize("kinds", groups(MARIADB, 3), ids=", ".join)
@random
@given(data=st.data())
def test_keys_of_mariadb(
    mariadb_table: test_mysql_tables.Database,
    monkeypatch: pytest.MonkeyPatch,
    kinds: dict[str, Values],
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(mysql, "BATCH", 5)
    try:
        check_keys(mariadb_table, kinds, data, "ON DUPLICATE KEY UPDATE n = 0")
    finally:
        mariadb_table.followed.pop().close()


@pytest.mark.parametrize("kinds", groups(POSTGRES, 2), ids=", ".join)
@random
@given(data=st.data())
def test_keys_of_postgresql(
    postgres_table: test_postgres_source.Database,
    monkeypatch: pytest.MonkeyPatch,
    kinds: dict[str, Values],
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(postgres, "BATCH", 5)
    postgres_table.do(*TYPES)
    try:
        # The log lacks a large value that did not change: its row is looked up by its key.
        large = "ALTER TABLE {t} ALTER large SET STORAGE EXTERNAL"
        check_keys(postgres_table, kinds, data, "ON CONFLICT DO NOTHING", large)
    finally:
        postgres_table.followed.pop().close()
        postgres_table.do("SELECT pg_drop_replication_slot('{t}')")
        postgres_table.do("DROP TABLE {t}", *TYPES[:2])


@settings(random, max_examples=2)  # of some sixty types
@given(data=st.data())
def test_each_key_of_postgresql_has_an_id_of_its_own(
    postgres_table: test_postgres_source.Database,
    monkeypatch: pytest.MonkeyPatch,
    data: st.DataObject,
) -> None:
    """Each type is a key alone, which is read in several pages; some values look alike."""
    monkeypatch.setattr(postgres, "BATCH", 5)
    names = {kind: f"k{at}" for at, kind in enumerate(POSTGRES)}
    rows = data.draw(st.lists(st.tuples(*POSTGRES.values()), min_size=ROWS, max_size=ROWS))
    postgres_table.do(
        *TYPES,
        "DROP TABLE IF EXISTS {t}",
        f"CREATE TABLE {{t}} ({', '.join(f'{name} {kind}' for kind, name in names.items())})",
        f"INSERT INTO {{t}} VALUES ({'), ('.join(map(', '.join, rows))})",
    )
    for kind, name in names.items():
        followed = postgres_table.follow(follow=False, key=name, columns=[name])
        ((count,),) = postgres_table.do(f"SELECT count(DISTINCT {name}) FROM {{t}}")
        assert len(followed.objects) >= count, (kind, followed.objects)
        postgres_table.followed.pop().close()
    postgres_table.do("DROP TABLE {t}", *TYPES[:2])
