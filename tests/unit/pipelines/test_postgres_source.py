"""A table of PostgreSQL as a source: what happens to the table while it is followed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.unit.pipelines import server
from tests.unit.pipelines.followed import Followed
from tidings.core.model.operations import parse_number
from tidings.pipelines import PostgresTable, postgres
from tidings.pipelines.messages import Away, WrongPipeline


class Database:
    """A database, and the readers of its table *t*, a name that is unique to the test."""

    def __init__(self, dsn: str, t: str) -> None:
        self.dsn, self.t, self.followed = dsn, t, list[Followed]()
        self.connection = psycopg.connect(dsn, autocommit=True)

    def do(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements* in one transaction; return the rows of the last one."""
        with self.connection.transaction(), self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.replace("{t}", self.t).encode())
            return cursor.fetchall() if cursor.description else []

    def reader(self, **options: Any) -> Followed:
        given = {"slot": self.t, **options}
        self.followed.append(Followed(lambda: PostgresTable(self.dsn, self.t, **given)))
        return self.followed[-1]

    def follow(self, **options: Any) -> Followed:
        """Return a reader that has copied the table."""
        self.reader(**options)
        return (
            self.followed[-1]
            .start()
            .until(lambda: self.followed[-1].state.get(self.t, {}).get("mode") == "complete")
        )

    def slot(self) -> str:
        ((lsn,),) = self.do(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{t}'"
        )
        return str(lsn)


@pytest.fixture
def table(
    database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    monkeypatch.setattr(postgres, "LOOK_S", 0.02)
    made = Database(database, f"t{abs(hash(request.node.name)) % 10**9}")
    yield made
    for each in made.followed:
        each.close()
    made.do("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    made.connection.close()


PARTITIONED = (
    "CREATE TABLE {t} (id int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region)",
    "CREATE TABLE {t}_a PARTITION OF {t} FOR VALUES IN ('a')",
    "CREATE TABLE {t}_b PARTITION OF {t} FOR VALUES IN ('b')",
    "INSERT INTO {t} VALUES (1, 'a'), (2, 'a'), (1, 'b')",
)
PLAIN = ("CREATE TABLE {t} (id int PRIMARY KEY, v text)", "INSERT INTO {t} VALUES (1, 'one')")


@pytest.mark.parametrize(
    ("statements", "left"),
    [
        (["TRUNCATE {t}_a"], {"1/b"}),
        (["TRUNCATE ONLY {t}_b"], {"1/a", "2/a"}),
        (["TRUNCATE {t}"], set()),
        (["TRUNCATE {t}_a, {t}_b"], set()),
        (["TRUNCATE {t}_a", "INSERT INTO {t} VALUES (7, 'a')"], {"1/b", "7/a"}),
        (["INSERT INTO {t} VALUES (7, 'a')", "TRUNCATE {t}_a"], {"1/b"}),
        (["DELETE FROM {t} WHERE id = 2", "TRUNCATE {t}_b"], {"1/a"}),
        (["DROP TABLE {t}_a"], {"1/b"}),
        (["ALTER TABLE {t} DETACH PARTITION {t}_a"], {"1/b"}),
        (["ALTER TABLE {t} DETACH PARTITION {t}_a", "TRUNCATE {t}_a"], {"1/b"}),
        (
            [
                "CREATE TABLE {t}_c (id int, region text NOT NULL, PRIMARY KEY (id, region))",
                "INSERT INTO {t}_c VALUES (8, 'c')",
                "ALTER TABLE {t} ATTACH PARTITION {t}_c FOR VALUES IN ('c')",
            ],
            {"1/a", "2/a", "1/b", "8/c"},
        ),
        (
            [
                "CREATE TABLE {t}_c PARTITION OF {t} FOR VALUES IN ('c')",
                "INSERT INTO {t} VALUES (9, 'c')",
                "UPDATE {t} SET region = 'c' WHERE region = 'b'",
            ],
            {"1/a", "2/a", "1/c", "9/c"},
        ),
    ],
    ids=lambda values: "; ".join(sorted(values) if isinstance(values, set) else values),
)
def test_partitions_that_are_emptied_removed_or_added(
    table: Database, statements: list[str], left: set[str]
) -> None:
    """Delete the objects of the rows that are gone, and no others; also after a restart."""
    table.do(*PARTITIONED)
    followed = table.follow().until_ids("1/a", "2/a", "1/b")
    table.do(*statements)
    followed.until_ids(*left).settle()
    assert set(followed.objects) == left
    followed.start().settle()
    assert set(followed.objects) == left
    table.do("INSERT INTO {t} VALUES (5, 'b')")
    followed.until_ids(*left, "5/b")


def test_a_truncation_by_way_of_a_foreign_key(table: Database) -> None:
    table.do(
        "CREATE TABLE {t}_parent (id int PRIMARY KEY)",
        "CREATE TABLE {t} (id int PRIMARY KEY, parent int REFERENCES {t}_parent)",
        "INSERT INTO {t}_parent VALUES (1)",
        "INSERT INTO {t} VALUES (1, 1), (2, 1)",
    )
    followed = table.follow().until_ids("1", "2")
    table.do("TRUNCATE {t}_parent CASCADE")
    followed.until_ids()


def test_tables_that_inherit(table: Database) -> None:
    table.do(
        *PLAIN,
        "CREATE TABLE {t}_child (PRIMARY KEY (id), more text) INHERITS ({t})",
        "INSERT INTO {t}_child VALUES (2, 'two', 'x')",
    )
    followed = table.follow().until_ids("1", "2")
    table.do("INSERT INTO {t}_child VALUES (3, 'three', 'y')")
    followed.until_ids("1", "2", "3")
    assert followed.objects["3"] == {"id": 3, "v": "three"}
    assert followed.objects["2"] == {"id": 2, "v": "two"}
    table.do("TRUNCATE {t}_child")
    followed.until_ids("1")


SWAP = (
    "CREATE TABLE {t}_new (id int PRIMARY KEY, v text)",
    "INSERT INTO {t}_new VALUES (7, 'seven')",
    "ALTER TABLE {t} RENAME TO {t}_old",
    "ALTER TABLE {t}_new RENAME TO {t}",
)


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize(
    ("statements", "later", "left"),
    [
        (SWAP, ["INSERT INTO {t}_old VALUES (9, 'of the old one')"], {"7"}),
        (SWAP, ["UPDATE {t} SET v = 'new'", "INSERT INTO {t} VALUES (8, 'x')"], {"7", "8"}),
        (
            ["DROP TABLE {t}", "CREATE TABLE {t} (id int PRIMARY KEY, z text)"],
            ["INSERT INTO {t} VALUES (5, 'five')"],
            {"5"},
        ),
        (
            ["DROP TABLE {t}", "CREATE TABLE {t} (id bigint PRIMARY KEY)"],
            ["INSERT INTO {t} VALUES (5)", "DELETE FROM {t}"],
            set(),
        ),
        (["ALTER TABLE {t} RENAME v TO w"], ["INSERT INTO {t} VALUES (5)"], {"1", "5"}),
    ],
    ids=["old-one", "new-one", "recreated", "recreated-empty", "renamed-column"],
)
def test_a_table_that_is_replaced(
    table: Database, statements: list[str], later: list[str], left: set[str], is_running: bool
) -> None:
    """The objects are those of the table with the name, never of the one that had it."""
    table.do(*PLAIN)
    followed = table.follow().until_ids("1")
    if not is_running:
        followed.close()
    table.do(*statements)
    table.do(*later)
    if not is_running:
        followed.start()
    followed.until_ids(*left).settle()
    columns = [
        name
        for (name,) in table.do(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = '{t}'::regclass AND attnum > 0"
        )
    ]
    assert all(set(each) == set(columns) for each in followed.objects.values())
    table.do("INSERT INTO {t} (id) VALUES (11)")
    followed.until_ids(*left, "11")
    table.do("DELETE FROM {t} WHERE id = 11")
    followed.until_ids(*left)


def test_a_table_that_is_missing_for_a_while(table: Database) -> None:
    """The reader waits for it, and keeps the objects until it can compare."""
    table.do(*PLAIN)
    followed = table.follow().until_ids("1")
    table.do("ALTER TABLE {t} RENAME TO {t}_away")
    with pytest.raises(Away, match="no table has this name"):
        followed.settle()
    with pytest.raises(Away, match="no table has this name"):
        followed.start()
    table.do("INSERT INTO {t}_away VALUES (2, 'two')", "ALTER TABLE {t}_away RENAME TO {t}")
    assert set(followed.objects) == {"1"}
    followed.start().until_ids("1", "2")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {t} ADD extra int NOT NULL DEFAULT 5",
        "ALTER TABLE {t} DROP v",
        "ALTER TABLE {t} ALTER v TYPE varchar(9)",
        "ALTER TABLE {t} ALTER v TYPE int USING length(v)",
        "ALTER TABLE {t} ADD g int GENERATED ALWAYS AS (id * 2) STORED",
        "ALTER TABLE {t} RENAME v TO w",
    ],
)
def test_columns_that_are_altered(table: Database, statement: str) -> None:
    """Each object equals the query of its row, although the log has no row changes for an
    alteration."""
    table.do(*PLAIN, "INSERT INTO {t} VALUES (2, 'two')")
    followed = table.follow().until_ids("1", "2")
    table.do("UPDATE {t} SET id = 3 WHERE id = 2", statement, "INSERT INTO {t} (id) VALUES (4)")
    followed.until_ids("1", "3", "4").settle()
    rows = {str(row["id"]): row for (row,) in table.do("SELECT to_json({t}) FROM {t}")}
    assert followed.objects == rows


@pytest.mark.parametrize("restarts", [True, False])
def test_a_slot_that_is_lost(table: Database, restarts: bool) -> None:
    """The reader copies again, and deletes the objects of rows that were deleted in the
    meantime."""
    table.do(*PLAIN)
    followed = table.follow().until_ids("1")
    followed.close()
    table.do("SELECT pg_drop_replication_slot('{t}')")
    table.do("DELETE FROM {t}", "INSERT INTO {t} VALUES (2, 'two')")
    followed.start()
    if restarts:  # killed in the middle of the copy
        followed.step()
        followed.step()
        followed.start()
    followed.until_ids("2")


def another_time(state: dict[str, Any]) -> None:
    commit = bytearray.fromhex(state["commit"])
    commit[-1] ^= 1
    state["commit"] = commit.hex()


def another_end(state: dict[str, Any]) -> None:
    commit = bytearray.fromhex(state["commit"])
    commit[10:18] = b"\0\0\xff\0\0\0\0\0"
    state["commit"] = commit.hex()


@pytest.mark.parametrize(
    ("change", "is_copied"),
    [
        (lambda state: state.update(system="1"), True),
        (another_time, True),
        (another_end, True),  # the log ended later than it does now
        (lambda state: state.pop("system") and state.pop("commit"), False),  # an earlier release
        (lambda state: None, False),  # a crash; the slot has an earlier position than the feed
    ],
)
def test_a_server_that_was_put_back(table: Database, change: Any, is_copied: bool) -> None:
    """A slot before a transaction that the feed has is another history if the log lacks it."""
    table.do("CREATE TABLE {t} (id int PRIMARY KEY, v text)", "INSERT INTO {t} VALUES (1, 'old')")
    followed = table.follow()
    table.do("INSERT INTO {t} VALUES (2, 'two'), (3, 'three')")
    followed.until_ids("1", "2", "3").close()  # the reader ends before it advances the slot
    table.do("DELETE FROM {t} WHERE id = 1", "INSERT INTO {t} VALUES (4, 'four')")
    change(followed.state[table.t])
    followed.appended.clear()
    followed.start().until_ids("2", "3", "4").settle()
    found = [(each["event"], each["id"]) for each in followed.appended]
    assert ("insert", "4") in found
    assert (found[-1] == ("delete", "1")) == is_copied
    assert followed.state[table.t]["system"] != "1"
    assert is_copied or len(followed.state[table.t]["commit"]) == 52
    public = "SELECT has_function_privilege('public', 'pg_control_system()', 'EXECUTE')"
    assert table.do(public) == [(True,)]


def writes(table: Database) -> None:
    """Write as an owner does; the values of the first column are those of a key."""
    table.do("INSERT INTO {t} VALUES (101, 'x')", "UPDATE {t} SET v = v || '!'", "DELETE FROM {t}")


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        ("(id int, v text)", {"key": "id"}, "has no replica identity.*ADD PRIMARY KEY"),
        ("(id int, v text)", {}, "has no primary key; give key="),
        ("(id int UNIQUE, v text)", {"key": "id"}, "has no replica identity"),
        ("(id int PRIMARY KEY, v text UNIQUE)", {"key": "v"}, "not in the replica identity"),
        ("(id int PRIMARY KEY, v text)", {"key": "w"}, "no column 'w'; the columns are id, v"),
        ("(id int PRIMARY KEY DEFERRABLE, v text)", {}, "has no replica identity|is not unique"),
        ("(id int, v text, PRIMARY KEY (id, v))", {"key": "id"}, "is not unique"),
    ],
)
def test_a_table_whose_key_the_log_would_lack(
    table: Database, make: str, options: dict[str, Any], said: str
) -> None:
    """Refuse it before anything is made; the owner's writes keep working."""
    table.do(f"CREATE TABLE {{t}} {make}")
    followed = Followed(lambda: PostgresTable(table.dsn, table.t, slot=table.t, **options))
    with pytest.raises(WrongPipeline, match=said):
        followed.start()
    assert table.do("SELECT 1 FROM pg_publication WHERE pubname = '{t}'") == []
    assert table.do("SELECT 1 FROM pg_replication_slots WHERE slot_name = '{t}'") == []
    writes(table)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {t} REPLICA IDENTITY NOTHING",
        "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey",
        "ALTER TABLE {t} REPLICA IDENTITY USING INDEX {t}_v_key",
    ],
)
def test_an_identity_that_is_lost_while_the_table_is_followed(
    table: Database, statement: str
) -> None:
    """Stop publishing, so that the owner can write; when it is back, the table is copied again."""
    table.do("CREATE TABLE {t} (id int PRIMARY KEY, v text UNIQUE NOT NULL)")
    table.do("INSERT INTO {t} VALUES (1, 'one')")
    followed = table.follow().until_ids("1")
    table.do(statement)
    with pytest.raises(WrongPipeline, match=r"primary key|replica identity"):
        followed.settle()
    writes(table)
    table.do(
        "ALTER TABLE {t} DROP CONSTRAINT IF EXISTS {t}_pkey",
        "ALTER TABLE {t} ADD PRIMARY KEY (id), REPLICA IDENTITY DEFAULT",
    )
    table.do("INSERT INTO {t} VALUES (2, 'two')")
    followed.start().until_ids("2")


@pytest.mark.parametrize("identity", ["FULL", "USING INDEX {t}_code_key"], ids=["full", "index"])
def test_a_key_that_is_not_the_primary_key(table: Database, identity: str) -> None:
    """Updates of the key and deletions are those of the object's key."""
    table.do(
        "CREATE TABLE {t} (id int PRIMARY KEY, code text UNIQUE NOT NULL, v text)",
        f"ALTER TABLE {{t}} REPLICA IDENTITY {identity}",
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    followed = table.follow(key="code").until_ids("a", "b", "c")
    table.do(
        "UPDATE {t} SET code = 'z' WHERE id = 1",
        "UPDATE {t} SET v = 'x' WHERE id = 2",
        "UPDATE {t} SET id = 30 WHERE id = 3",
        "DELETE FROM {t} WHERE id = 2",
    )
    followed.until_ids("z", "c").settle()
    assert followed.objects["c"]["id"] == 30


def test_an_idle_table_next_to_a_busy_one(table: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot moves on with the server's log, and nothing of the table is lost."""
    monkeypatch.setattr(postgres, "RELEASE_S", 0.0)
    table.do(*PLAIN, "CREATE TABLE {t}_busy (n int)")
    followed = table.follow().until_ids("1")
    before = table.slot()
    table.do("INSERT INTO {t}_busy SELECT generate_series(1, 1000)")
    followed.settle()
    assert table.slot() > before
    with psycopg.connect(table.dsn) as writer:  # an open transaction of the table
        writer.execute(f"INSERT INTO {table.t} VALUES (2, 'two')".encode())
        table.do("INSERT INTO {t}_busy SELECT generate_series(1, 1000)")
        followed.settle()
        writer.commit()
    followed.until_ids("1", "2")


def test_an_idle_server_is_asked_for_the_end_of_its_log_alone(
    table: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change of a row or of a table moves that end."""
    monkeypatch.setattr(postgres, "RELEASE_S", 0.0)
    table.do(*PLAIN, "CREATE TABLE {t}_new (LIKE {t} INCLUDING ALL)")
    followed, asked = table.follow().until_ids("1").settle(), list[str]()
    ask = PostgresTable._query

    def counted(self: PostgresTable, query: Any, *values: Any) -> Any:
        asked.append(str(query))
        return ask(self, query, *values)

    monkeypatch.setattr(PostgresTable, "_query", counted)
    quiet = 0
    for _ in range(50):  # the server sometimes writes to its log
        asked.clear()
        followed.step()
        quiet += len(asked) == 1
    assert quiet > 25
    table.do("ALTER TABLE {t} RENAME TO {t}_old", "ALTER TABLE {t}_new RENAME TO {t}")
    followed.until_ids()


def test_generated_columns_and_large_values(table: Database) -> None:
    """The log leaves them out; objects have them after each change, as in the copy."""
    table.do(
        "CREATE TABLE {t} (id int PRIMARY KEY, v text, big text,"
        " g int GENERATED ALWAYS AS (id * 2) STORED)",
        "ALTER TABLE {t} ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO {t} SELECT n, 'v', repeat('x', 9000) FROM generate_series(1, 700) n",
    )
    followed = table.follow()
    copied = dict(followed.objects)
    table.do("UPDATE {t} SET v = 'w'", "DELETE FROM {t} WHERE id = 700")
    followed.until(lambda: "700" not in followed.objects).settle()
    assert followed.objects == {
        name: {**each, "v": "w"} for name, each in copied.items() if name != "700"
    }
    assert followed.objects["9"]["g"] == 18


def test_a_large_key(table: Database) -> None:
    """The log has it only in the old row if another column changes."""
    j, k, z = (each * 2100 for each in "jkz")
    table.do(
        "CREATE TABLE {t} (k text PRIMARY KEY, n int)",
        "ALTER TABLE {t} ALTER k SET STORAGE EXTERNAL",
        f"INSERT INTO {{t}} VALUES ('{j}', 0), ('{k}', 0)",
    )
    followed = table.follow()
    table.do("UPDATE {t} SET n = 1 WHERE k LIKE 'k%'")
    followed.until(lambda: bool(followed.objects[k]["n"]))
    table.do("UPDATE {t} SET k = repeat('z', 2100) WHERE n = 1")
    followed.until_ids(j, z)


def test_composite_keys_are_different_objects(table: Database) -> None:
    """This holds for any values."""
    keys = [("x/y", "z"), ("x", "y/z"), ("x%2Fy", "z"), ("", "/"), ("/", ""), ("%", "/")]
    table.do("CREATE TABLE {t} (a text, b text, PRIMARY KEY (a, b))")
    rows = ", ".join(f"('{a}', '{b}')" for a, b in keys)
    table.do(f"INSERT INTO {{t}} VALUES {rows}")
    followed = table.follow()
    assert len(followed.objects) == len(keys)
    assert followed.objects["x%2Fy/z"] == {"a": "x/y", "b": "z"}
    table.do("DELETE FROM {t} WHERE a = 'x/y'")
    followed.until(lambda: len(followed.objects) == len(keys) - 1)
    assert "x%2Fy/z" not in followed.objects


@pytest.mark.parametrize(
    ("change", "repair"),
    [
        ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete, truncate')"),
        ("SET (publish_via_partition_root = true)", "SET (publish_via_partition_root = false)"),
        ("DROP TABLE {t}", ""),
        ("SET TABLE {t}_other", ""),
    ],
)
def test_a_publication_that_others_change(table: Database, change: str, repair: str) -> None:
    """Changes that it did not publish are read with the next copy, also once it is restored."""
    table.do(*PARTITIONED, "CREATE TABLE {t}_other (id int)")
    followed = table.follow()
    table.do(f"ALTER PUBLICATION {{t}} {change}")
    table.do("TRUNCATE {t}_b", "INSERT INTO {t} VALUES (9, 'a')")
    if repair:
        with pytest.raises(WrongPipeline, match="DROP PUBLICATION"):
            followed.until_ids("never")
        table.do(f"ALTER PUBLICATION {{t}} {repair}")
        followed.start()
    followed.until_ids("1/a", "2/a", "9/a")
    table.do("DELETE FROM {t} WHERE id = 9")
    followed.until_ids("1/a", "2/a")


def test_numbers_in_json_keep_their_digits(table: Database) -> None:
    """They stay numbers, except those beyond the range of a double, which a feed rejects."""
    table.do("CREATE TABLE {t} (id int PRIMARY KEY, j jsonb, k json)")
    long = "1234567890.123456789012345"
    value = f'{{"a": {long}, "b": [0.1, 1.5], "c": 98765432109876543210}}'
    table.do(f"INSERT INTO {{t}} VALUES (1, '{value}', '[1e400, 1e3]')")
    followed = table.follow()
    table.do(f"INSERT INTO {{t}} VALUES (2, '{value}', '[1e400, 1e3]')")
    followed.until_ids("1", "2")
    expected = {"a": parse_number(long), "b": [0.1, 1.5], "c": 98765432109876543210}
    assert [each["j"] for each in followed.objects.values()] == [expected] * 2
    assert [each["j"]["a"].text for each in followed.objects.values()] == [long] * 2
    assert [each["k"] for each in followed.objects.values()] == [["1e400", 1000.0]] * 2


@contextmanager
def serving(folder: Path) -> Iterator[Database]:
    with server.serving(folder) as dsn:
        table = Database(dsn, "restored")
        yield table
        table.connection.close()


@pytest.mark.postgresql
def test_a_postgresql_that_was_restored_is_copied_again() -> None:
    """The copy has the slot, too, but not what was read since."""
    with tempfile.TemporaryDirectory() as name:
        folder, data, backup = (Path(name, each) for each in ("", "data", "backup"))
        server.make(folder)
        with serving(folder) as table:
            table.do("CREATE TABLE {t} (id int PRIMARY KEY, v text)")
            table.do("INSERT INTO {t} VALUES (1, 'one'), (2, 'two')")
            followed = table.follow()
            followed.close()
        subprocess.run(["cp", "-a", data, backup], check=True)
        with serving(folder) as table:
            table.do("INSERT INTO {t} VALUES (3, 'three')", "UPDATE {t} SET v = 'ONE' WHERE id = 1")
            table.do("DELETE FROM {t} WHERE id = 2")
            followed.start().until_ids("1", "3").settle().close()
        shutil.rmtree(data)
        backup.rename(data)
        with serving(folder) as table:
            table.do("INSERT INTO {t} VALUES (5, 'five')")
            followed.start().settle().close()
            rows = {str(id): {"id": id, "v": v} for id, v in table.do("SELECT id, v FROM {t}")}
            assert followed.objects == rows
