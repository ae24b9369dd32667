"""Each type of column: the copy, the log and `sync table` agree on every value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from tests.unit.pipelines.followed import Followed
from tests.unit.pipelines.test_postgres_source import Database, table
from tidings.pipelines import MySQLTable
from tidings.pipelines.mysql import server_of
from tidings.sync.postgres import Mapping
from tidings.sync.postgres import PostgresTable as SyncedTable

__all__ = ["table"]

POSTGRES = {
    "smallint": ["-32768", "32767"],
    "integer": ["-2147483648"],
    "bigint": ["9223372036854775807", "-9223372036854775808"],
    "numeric": ["'NaN'", "'Infinity'", "1.10", "12345678901234567890.123456789012345"],
    "numeric(10,2)": ["1.5", "-0.01"],
    "real": ["1.1", "'NaN'", "'-Infinity'", "1e-40"],
    "double precision": ["0.1", "1e308", "'Infinity'", "'-0'"],
    "money": ["12.34"],
    "boolean": ["true", "false"],
    "char(5)": ["'ab'"],
    "varchar(9)": ["'x/y'", "''"],
    "text": [r"E'line\nbreak\t\u00e9\U0001f600'", "'infinity'", r"E'\x01'"],
    '"char"': ["'a'"],
    "name": ["'n'"],
    "bytea": [r"'\x00ff'", "''"],
    "date": ["'2026-01-02'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'99999-01-01'"],
    "time": ["'01:02:03.456'", "'24:00:00'"],
    "timetz": ["'01:02:03+05:30'", "'24:00:00-12'"],
    "timestamp": ["'2026-01-02 03:04:05.678901'", "'infinity'", "'20000-01-01'", "'0001-01-01 BC'"],
    "timestamptz": ["'2026-01-02 03:04:05+05'", "'-infinity'", "'0001-01-01 00:00:00+00'"],
    "interval": ["'1 day 2:03:04.5'", "'1 year 2 mons'", "'-178000000 years'", "'300000 years'"],
    "uuid": ["'00112233-4455-6677-8899-aabbccddeeff'"],
    "json": ["""'{"b": 1.10, "a": [null, 1e400]}'""", "'\"text\"'"],
    "jsonb": ["""'{"a": 12345678901234567890.123456789, "b": 1e2}'""", "'null'", "'1.5'"],
    "xml": ["'<a>1</a>'"],
    "inet": ["'10.0.0.1'", "'10.0.0.1/8'", "'::1'"],
    "cidr": ["'10.0.0.0/8'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "bit(3)": ["B'101'"],
    "bit varying": ["B'1'"],
    "point": ["'(1,2)'"],
    "box": ["'(1,2),(3,4)'"],
    "circle": ["'<(1,2),3>'"],
    "tsvector": ["'a b'"],
    "pg_lsn": ["'16/B374D848'"],
    "oid": ["4294967295"],
    "integer[]": ["'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'{}'"],
    "text[]": ["""'{a,"b,c",NULL,""}'"""],
    "date[]": ["'{2026-01-02,infinity}'"],
    "jsonb[]": ["""ARRAY['{"a": 1.5}'::jsonb]"""],
    "int4range": ["'[1,5)'", "'empty'", "'(,5)'"],
    "daterange": ["'[2026-01-01,infinity)'"],
    "tstzrange": ["'[2026-01-01,)'"],
    "int4multirange": ["'{[1,3),[5,7)}'"],
    "mood": ["'sad'"],
    "domained": ["7"],
    "pair": ["ROW(1, 'x')"],
    "mood[]": ["'{sad,ok}'", "'{{sad},{ok}}'", "'{}'"],
    "domained[]": ["'{1,NULL}'"],
    "words": ["'{a,\"b,c\"}'"],
    "words[]": ["""'{"{a,b}","{}"}'"""],
    "pair[]": ["""ARRAY[ROW(1, 'x,y')::pair]"""],
    "citext": ["'Abc'"],
    "citext[]": ["'{Abc,NULL}'"],
    "box[]": ["'{(3,4),(1,2);(7,8),(5,6)}'"],
    "hstore": ["'a=>1,b=>NULL'"],
    "hstore[]": ["""ARRAY['a=>1'::hstore]"""],
    "floats": ["'[1.5,2.5)'"],
    "floats[]": ["""ARRAY['[1.5,2.5)'::floats]"""],
    "pg_lsn[]": ["'{16/B374D848}'"],
    "timestamptz[]": ["'{2026-01-01 00:00:00+02,-infinity,10000-01-01}'"],
    "int2vector": ["'1 2'"],
}


def test_types_of_postgresql(table: Database) -> None:
    """Each type has ordinary values, the ends of its range, and values that Python cannot
    represent."""
    table.do(
        "DROP TYPE IF EXISTS mood, pair, floats",
        "DROP DOMAIN IF EXISTS domained, words",
        "CREATE EXTENSION IF NOT EXISTS citext",
        "CREATE EXTENSION IF NOT EXISTS hstore",
        "CREATE TYPE floats AS RANGE (subtype = float8)",
        "CREATE DOMAIN words AS text[]",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN domained AS int CHECK (VALUE > 0)",
        "CREATE TYPE pair AS (n int, t text)",
    )
    names = {kind: f"c{at}" for at, kind in enumerate(POSTGRES)}
    columns = ", ".join(f"{name} {kind}" for kind, name in names.items())
    table.do(f"CREATE TABLE {{t}} (id text PRIMARY KEY, {columns})")
    rows = [
        (f"{side}-{name}-{at}", name, value)
        for side in ("copy", "log", "changed")
        for kind, name in names.items()
        for at, value in enumerate(POSTGRES[kind])
    ]
    insert = [
        f"INSERT INTO {{t}} (id, {name}) VALUES ('{id}', {value})" for id, name, value in rows
    ]
    third = len(insert) // 3
    table.do(*insert[:third])
    followed = table.follow()
    table.do(*insert[third:])
    table.do("UPDATE {t} SET id = id WHERE id LIKE 'changed%'")
    followed.until(lambda: len(followed.objects) == len(rows)).settle()
    kinds = {name: kind for kind, name in names.items()}
    source = SyncedTable(table.dsn, table.t, Mapping(data=True))
    chunk = source.chunk(None, 10_000)
    source.close()
    assert chunk is not None
    synced = {id: json.loads(line)["data"] for id, line in chunk.rows.items()}
    for id, name, value in rows[:third]:
        seen = [
            side[f"{way}{id.removeprefix('copy')}"][name]
            for side in (followed.objects, synced)
            for way in ("copy", "log", "changed")
        ]
        assert [repr(each) for each in seen] == [repr(seen[0])] * 6, (kinds[name], value)
    lists = {
        "mood[]": ["sad", "ok"],
        "domained[]": [1, None],
        "words": ["a", "b,c"],
        "words[]": [["a", "b"], []],
        "pair[]": ['(1,"x,y")'],
        "citext[]": ["Abc", None],
        "box[]": ["(3,4),(1,2)", "(7,8),(5,6)"],
        "hstore[]": ['"a"=>"1"'],
        "floats[]": ["[1.5,2.5)"],
        "pg_lsn[]": ["16/B374D848"],
        "timestamptz[]": ["2025-12-31T22:00:00+00:00", "-infinity", "10000-01-01 00:00:00+00"],
    }
    for kind, listed in lists.items():
        assert followed.objects[f"log-{names[kind]}-0"][names[kind]] == listed
    assert followed.objects[f"log-{names['date']}-1"][names["date"]] == "infinity"
    assert followed.objects[f"log-{names['timestamptz']}-1"][names["timestamptz"]] == "-infinity"
    assert followed.objects[f"log-{names['date']}-3"][names["date"]] == "0044-03-15 BC"


@pytest.mark.parametrize(
    ("kind", "value", "seen"),
    [
        ("mood[]", "'{sad,ok}'", ["sad", "ok"]),
        ("mood[]", "'{{sad,ok},{ok,sad}}'", [["sad", "ok"], ["ok", "sad"]]),
        ("domained[]", "'{1,2}'", [1, 2]),
        ("citext[]", "'{Abc,d}'", ["Abc", "d"]),
        ("pair[]", """'{"(1,z)","(2,w)"}'""", ["(1,z)", "(2,w)"]),
    ],
)
def test_arrays_of_types_of_the_owner(table: Database, kind: str, value: str, seen: Any) -> None:
    """They are lists, of a copy and of the log."""
    table.do(
        "DROP TYPE IF EXISTS mood, pair CASCADE",
        "DROP DOMAIN IF EXISTS domained CASCADE",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN domained AS int CHECK (VALUE > 0)",
        "CREATE TYPE pair AS (n int, t text)",
        "CREATE EXTENSION IF NOT EXISTS citext",
        f"CREATE TABLE {{t}} (id int PRIMARY KEY, v {kind})",
        f"INSERT INTO {{t}} VALUES (1, {value})",
    )
    followed = table.follow()
    table.do(f"INSERT INTO {{t}} VALUES (2, {value})")
    followed.until_ids("1", "2")
    assert [each["v"] for each in followed.objects.values()] == [seen, seen]


MYSQL = {
    "tinyint": ["-128"],
    "tinyint unsigned": ["255"],
    "smallint": ["-32768"],
    "mediumint": ["8388607"],
    "int": ["-2147483648"],
    "int unsigned": ["4294967295"],
    "bigint": ["-9223372036854775808"],
    "bigint unsigned": ["18446744073709551615"],
    "decimal(65,30)": ["12345678901234567890.123456789012345"],
    "decimal(6,2)": ["1.5", "-0.01"],
    "float": ["1.1", "1e-30"],
    "double": ["0.1", "1e308"],
    "bool": ["1"],
    "bit(9)": ["b'101010101'", "0"],
    "char(5)": ["'ab'", "''"],
    "varchar(9)": ["'x/y '", "'\u00e9'"],
    "varchar(9) CHARACTER SET latin1": ["'\u00e9'"],
    "tinytext": ["'a'"],
    "text": ["'line\nbreak'", "'\U0001f600'"],
    "longtext": ["repeat('x', 30000)"],
    "binary(4)": ["x'00ff'"],
    "varbinary(9)": ["x'00ff00'", "''"],
    "blob": ["x'ff'"],
    "date": ["'2026-01-02'", "'0000-00-00'", "'2026-00-00'", "'9999-12-31'"],
    "datetime": ["'2026-01-02 03:04:05'", "'0000-00-00 00:00:00'"],
    "datetime(6)": ["'2026-01-02 03:04:05.678901'"],
    "timestamp NULL": ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"],
    "time": ["'838:59:59'", "'-838:59:59'"],
    "time(3)": ["'-00:00:00.500'"],
    "year": ["2026", "0"],
    "enum('a','b')": ["'b'"],
    "set('a','b')": ["'a,b'", "''"],
    "json": ["""'{"a": 12345678901234567890.123456789}'"""],
    "point": ["ST_GeomFromText('POINT(1 2)')"],
    "inet6": ["'::1'"],
    "uuid": ["'00112233-4455-6677-8899-aabbccddeeff'"],
}


@pytest.fixture
def connection(mariadb_url: str) -> Iterator[pymysql.Connection[Any]]:
    with pymysql.connect(**server_of(mariadb_url)[0]) as made:
        yield made


def test_types_of_mariadb(connection: pymysql.Connection[Any], mariadb_url: str) -> None:
    """Each type has ordinary values, the ends of its range, and values that Python cannot
    represent."""
    names = {kind: f"c{at}" for at, kind in enumerate(MYSQL)}
    cursor = connection.cursor()
    cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
    columns = ", ".join(f"{name} {kind}" for kind, name in names.items())
    cursor.execute(f"CREATE TABLE kinds (id varchar(40) PRIMARY KEY, {columns})")
    rows = [
        (f"{side}-{name}-{at}", name, value)
        for side in ("copy", "log", "changed")
        for kind, name in names.items()
        for at, value in enumerate(MYSQL[kind])
    ]
    third = len(rows) // 3
    followed = Followed(lambda: MySQLTable(mariadb_url, "kinds"))
    for count, (id, name, value) in enumerate(rows):
        if count == third:
            followed.start().until(
                lambda: followed.state.get("kinds", {}).get("mode") == "complete"
            )
        cursor.execute(f"INSERT INTO kinds (id, {name}) VALUES ('{id}', {value})")
    cursor.execute("UPDATE kinds SET id = concat(id, '') , c0 = c0 WHERE id LIKE 'changed%'")
    followed.until(lambda: len(followed.objects) == len(rows)).settle()
    followed.close()
    kinds = {name: kind for kind, name in names.items()}
    for id, name, value in rows[:third]:
        seen = [
            followed.objects[f"{way}{id.removeprefix('copy')}"][name]
            for way in ("copy", "log", "changed")
        ]
        assert [repr(each) for each in seen] == [repr(seen[0])] * 3, (kinds[name], value)
        assert seen[0] is not None, (kinds[name], value)
    zero = followed.objects[f"log-{names['date']}-1"][names["date"]]
    assert zero == "0000-00-00"
