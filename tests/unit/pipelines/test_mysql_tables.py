"""A table of MariaDB as a source: what happens to the table while it is followed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from tests.unit.pipelines import real_stores
from tests.unit.pipelines.conftest import LOG_OPTIONS, started
from tests.unit.pipelines.followed import Followed
from tidings.pipelines import MySQLTable, mysql
from tidings.pipelines.messages import Away, WrongPipeline
from tidings.pipelines.mysql import server_of


class Database:
    """A database, and the readers of its table *t*, a name that is unique to the test."""

    def __init__(self, url: str, t: str) -> None:
        self.url, self.t, self.followed = url, t, list[Followed]()
        self.connection = pymysql.connect(**server_of(url)[0])

    def do(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run *statements*; return the rows of the last one."""
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.replace("{t}", self.t))
            return list(cursor.fetchall())

    def reader(self, **options: Any) -> Followed:
        self.followed.append(Followed(lambda: MySQLTable(self.url, self.t, **options)))
        return self.followed[-1]

    def follow(self, **options: Any) -> Followed:
        """Return a reader that has copied the table."""
        made = self.reader(**options).start()
        return made.until(lambda: made.state.get(self.t, {}).get("mode") == "complete")


@pytest.fixture
def table(
    mariadb_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    yield from opened(mariadb_url, request, monkeypatch)


def opened(
    url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    monkeypatch.setattr(mysql, "LOOK_S", 0.05)
    made = Database(url, f"t{abs(hash(request.node.name)) % 10**9}")
    yield made
    for each in made.followed:
        each.close()
    made.connection.close()


@pytest.fixture(scope="module")
def compressed_url() -> Iterator[str]:
    """Yield the address of a MariaDB that compresses every event of its log."""
    options = (*LOG_OPTIONS, "--log-bin-compress=ON", "--log-bin-compress-min-len=10")
    with started(lambda folder: real_stores.running_mariadb(folder, *options)) as url:
        yield url


@pytest.fixture
def compressed(
    compressed_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    yield from opened(compressed_url, request, monkeypatch)


PLAIN = ("CREATE TABLE {t} (id int PRIMARY KEY, v text)", "INSERT INTO {t} VALUES (1, 'one')")


def test_a_key_that_is_invisible(table: Database) -> None:
    table.do(
        "CREATE TABLE {t} (id int PRIMARY KEY AUTO_INCREMENT INVISIBLE, v int)",
        "ALTER TABLE {t} ADD more int INVISIBLE DEFAULT 5",
        "INSERT INTO {t} (id, v) VALUES (1, 1)",
    )
    followed = table.follow()
    table.do("INSERT INTO {t} (id, v) VALUES (2, 1)", "UPDATE {t} SET more = 6")
    followed.until(lambda: len(followed.objects) == 2).settle()
    assert followed.objects["2"] == {**followed.objects["1"], "id": 2}


@pytest.mark.parametrize("kind", ["time(6)", "time(3)"])
def test_a_negative_time_as_a_key(table: Database, kind: str) -> None:
    table.do(f"CREATE TABLE {{t}} (id {kind} PRIMARY KEY, v int)")
    table.do("INSERT INTO {t} VALUES ('-10:11:12.25', 1), ('-00:00:00.5', 1), ('10:00:00.5', 1)")
    followed = table.follow()
    table.do("UPDATE {t} SET v = 2")
    followed.settle()
    assert [each["v"] for each in followed.objects.values()] == [2, 2, 2]


@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
def test_a_compressed_log(compressed: Database, checksum: str) -> None:
    """Rows and statements of a log that the server compresses are those of a log as it is."""
    compressed.do(f"SET GLOBAL binlog_checksum = {checksum}", *PLAIN)
    followed = compressed.follow(max_deletes=300).until_ids("1")
    rows = ", ".join(f"({n}, '{'x' * 300}')" for n in range(2, 400))
    compressed.do(f"INSERT INTO {{t}} VALUES {rows}")
    followed.until(lambda: len(followed.objects) == 399)
    compressed.do(
        "UPDATE {t} SET v = CONCAT(v, 'y') WHERE id < 200", "DELETE FROM {t} WHERE id > 300"
    )
    followed.until(lambda: len(followed.objects) == 300)
    assert followed.objects["199"]["v"] == "x" * 300 + "y"
    compressed.do("TRUNCATE TABLE {t}")
    followed.until_ids()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("uuid", "('00112233-4455-6677-8899-aabbccddeeff'), (uuid()), (sys_guid())"),
        # The log cuts zero bytes at the end of a value.
        (
            "uuid",
            "('00112233-4455-4677-8899-aabbccddee00'), ('00112233-4455-1677-8899-000000000000')",
        ),
        ("uuid", "('00000000-0000-0000-0000-000000000000')"),
        ("binary(4)", "(x'ff000000'), (x'00000000'), (x'000000ff')"),
        ("char(4) CHARACTER SET binary", "(x'ff000000'), (x'')"),
        ("double", "(1.1), (1e300)"),
        ("time(3)", "('-00:00:00.500'), ('838:59:59')"),
        ("timestamp(3)", "('2026-01-02 03:04:05.5')"),
        ("enum('a','b')", "('b')"),
        ("varchar(9) CHARACTER SET cp1251", "('\u0436 '), ('%s')"),
        ("varbinary(9)", "(x'ff00'), ('')"),
    ],
)
def test_a_key_of_any_type(table: Database, kind: str, values: str) -> None:
    """The log names the rows that queries find."""
    table.do(
        f"CREATE TABLE {{t}} (id {kind} PRIMARY KEY, v text)",
        f"INSERT INTO {{t}} (id) VALUES {values}",
    )
    followed = table.follow()
    assert len(followed.objects) == len(table.do("SELECT * FROM {t}"))
    table.do("UPDATE {t} SET v = 'log'")
    followed.until(lambda: all(each["v"] == "log" for each in followed.objects.values()))
    table.do("DELETE FROM {t}")
    followed.until_ids()


def test_invisible_columns(table: Database) -> None:
    """They are not published, except those of the key; the copy, the log and a deletion agree."""
    table.do(
        "CREATE TABLE {t} (id int PRIMARY KEY AUTO_INCREMENT INVISIBLE, v text,"
        " secret int INVISIBLE DEFAULT 5)",
        "INSERT INTO {t} (v) VALUES ('one'), ('two')",
    )
    followed = table.follow()
    assert followed.objects == {"1": {"id": 1, "v": "one"}, "2": {"id": 2, "v": "two"}}
    table.do("UPDATE {t} SET v = 'log', secret = 6 WHERE id = 1", "DELETE FROM {t} WHERE id = 2")
    followed.until(lambda: followed.objects == {"1": {"id": 1, "v": "log"}})
    for options, seen in (
        ({"exclude": ["v"]}, {"id": 1}),
        ({"columns": ["v", "secret"]}, {"id": 1, "v": "log", "secret": 6}),
    ):
        chosen = table.follow(follow=False, **options)
        assert chosen.objects == {"1": seen}


def test_a_zero_of_a_key_is_read_again(table: Database) -> None:
    """A zero time of the log is not known, so the table is copied again; a zero year is known."""
    table.do(
        "SET sql_mode = ''",
        "CREATE TABLE {t} (y year, d date, t timestamp(3), v text, PRIMARY KEY (y, d, t))",
        "INSERT INTO {t} VALUES (0, '2026-00-00', 0, 'copy'), (1901, '2026-01-01', 0, 'copy'),"
        " (0, '2026-01-01', '2026-01-01', 'copy')",
    )
    followed = table.follow()
    assert len(followed.objects) == 3
    table.do("UPDATE {t} SET v = 'log'")
    followed.until(lambda: all(each["v"] == "log" for each in followed.objects.values()))


@pytest.mark.parametrize(
    ("kind", "follows"),
    [
        ("float", False),
        ("bit(9)", False),
        ("set('a','b')", True),
        ("inet6", True),
        ("varchar(9) CHARACTER SET utf16", True),
        ("varchar(9) CHARACTER SET swe7", True),
        ("char(9) CHARACTER SET ucs2", True),
    ],
)
def test_a_key_that_is_not_found_again_is_refused(
    table: Database, kind: str, follows: bool
) -> None:
    """By its name, before anything is read; where only the log differs, a copy is allowed."""
    table.do(f"CREATE TABLE {{t}} (n int, id {kind}, PRIMARY KEY (n, id))")
    with pytest.raises(WrongPipeline, match=r"its key column id must not be .*; give other"):
        table.reader().start()
    if follows:
        table.reader(follow=False).start()


@pytest.mark.parametrize("kind", ["text", "varchar(900)"])
@pytest.mark.parametrize("is_altered", [False, True])
def test_a_compressed_column_is_refused(table: Database, kind: str, is_altered: bool) -> None:
    """By its name, also when it is added; a copy is allowed."""
    table.do(*PLAIN)
    followed = table.follow() if is_altered else table.reader()
    table.do(f"ALTER TABLE {{t}} ADD c {kind} COMPRESSED", "UPDATE {t} SET c = repeat('x', 900)")
    with pytest.raises(WrongPipeline, match="its column c is compressed; give follow=False"):
        followed.until_ids() if is_altered else followed.start()
    assert next(table.reader(follow=False).start()._batches).operations


def test_a_table_with_system_versions(table: Database) -> None:
    """Its current rows are objects."""
    table.do(*PLAIN)
    followed = table.follow()
    table.do(
        "ALTER TABLE {t} ADD SYSTEM VERSIONING",
        "INSERT INTO {t} VALUES (2, 'two'), (3, 'three')",
        "UPDATE {t} SET v = 'changed' WHERE id = 2",
        "DELETE FROM {t} WHERE id = 1",
    )
    followed.until_ids("2", "3").settle()
    table.do("DELETE FROM {t} WHERE id = 3", "DELETE HISTORY FROM {t}")
    followed.until_ids("2").settle()
    assert followed.objects == {"2": {"id": 2, "v": "changed"}}


def event(kind: int, body: bytes, position: int = 7) -> bytes:
    return struct.pack("<IBIIIH", 1, kind, 7, 19 + len(body), position, 0) + body


@pytest.mark.parametrize("algorithm", [0, 255])
def test_a_transaction_that_mysql_compressed(algorithm: int) -> None:
    """Its events, of which only the last one is a place to resume at."""
    zstandard = pytest.importorskip("zstandard")
    inner = event(19, b"map") + event(30, b"r" * 300) + event(16, b"x")
    payload = zstandard.ZstdCompressor().compress(inner) if algorithm == 0 else inner
    size = b"\xfc" + struct.pack("<H", len(payload))
    fields = b"\x02" + (b"\x01\x00" if algorithm == 0 else b"\x03\xfc\xff\x00")
    body = b"\x01\x03" + size + fields + b"\x03\x03\xfc" + struct.pack("<H", len(inner)) + b"\0"
    packet = b"\0" + event(40, body + payload, 900) + b"sums"
    found = list(mysql.expand_packet(packet, 4))
    heads = [struct.unpack_from("<IBIIIH", each, 1) for each in found]
    assert [head[1] for head in heads] == [19, 30, 16]
    assert [head[4] for head in heads] == [0, 0, 900]
    assert [head[3] for head in heads] == [len(each) - 1 for each in found]
    assert found[1][20:-4] == b"r" * 300


@pytest.mark.parametrize(
    ("packet", "said"),
    [
        (event(99, b""), "an unknown event 99"),
        (event(26, b""), "the binary log lacks changes"),
        (event(40, b"\x02\x01\x05\x00"), "unknown compression 5"),
        (event(166, b"12345678\x01\x01\x90"), "unknown compression 0x90"),
    ],
)
def test_an_event_that_cannot_be_read_is_not_skipped(packet: bytes, said: str) -> None:
    with pytest.raises(WrongPipeline, match=said):
        list(mysql.expand_packet(b"\0" + packet, 0))


PARTITIONED = (
    "CREATE TABLE {t} (id int PRIMARY KEY) PARTITION BY RANGE (id)"
    " (PARTITION a VALUES LESS THAN (100), PARTITION b VALUES LESS THAN MAXVALUE)",
    "INSERT INTO {t} VALUES (1), (2), (200)",
)


@pytest.mark.parametrize(
    ("statements", "left"),
    [
        (["TRUNCATE {t}"], set()),
        (["truncate table `{t}`"], set()),
        (["/* a comment */ TRUNCATE TABLE objects.{t}"], set()),
        (["-- a comment\nTRUNCATE {t}"], set()),
        (["# a comment\n\tTRUNCATE\n{t}"], set()),
        (["/*!50000 TRUNCATE */ TABLE {t}"], set()),
        (["TRUNCATE/**/{t}"], set()),
        (["ALTER TABLE {t} TRUNCATE PARTITION a"], {"200"}),
        (["ALTER TABLE {t} DROP PARTITION a"], {"200"}),
        (["ALTER TABLE {t} REMOVE PARTITIONING"], {"1", "2", "200"}),
        (
            [
                "CREATE TABLE {t}_x (id int PRIMARY KEY)",
                "INSERT INTO {t}_x VALUES (50)",
                "ALTER TABLE {t} EXCHANGE PARTITION a WITH TABLE {t}_x",
            ],
            {"50", "200"},
        ),
        (["INSERT INTO {t} VALUES (7)", "TRUNCATE {t}", "INSERT INTO {t} VALUES (8)"], {"8"}),
        (["DROP TABLE {t}", "CREATE TABLE {t} (id int PRIMARY KEY)"], set()),
        (["CREATE OR REPLACE TABLE {t} (id int PRIMARY KEY)"], set()),
        (["CREATE TABLE {t}_x LIKE {t}", "TRUNCATE {t}_x", "DROP TABLE {t}_x"], {"1", "2", "200"}),
        (["SET binlog_format = STATEMENT", "DELETE FROM {t} WHERE id < 100"], {"200"}),
        (["SET binlog_format = MIXED", "DELETE FROM {t} WHERE id < 100"], {"200"}),
    ],
    ids=lambda values: "; ".join(sorted(values) if isinstance(values, set) else values),
)
@pytest.mark.parametrize("is_running", [True, False])
def test_statements_that_change_rows(
    table: Database, statements: list[str], left: set[str], is_running: bool
) -> None:
    """The objects are those of the rows, however the statement is written or logged."""
    table.do(*PARTITIONED)
    followed = table.follow().until_ids("1", "2", "200")
    if not is_running:
        followed.close()
    table.do(*statements)
    if not is_running:
        followed.start()
    followed.until_ids(*left).settle()
    assert set(followed.objects) == left
    table.do("SET binlog_format = ROW", "INSERT INTO {t} VALUES (9)")
    followed.until_ids(*left, "9")


SWAP = (
    "CREATE TABLE {t}_new (id int PRIMARY KEY, w text)",
    "INSERT INTO {t}_new VALUES (7, 'seven')",
    "RENAME TABLE {t} TO {t}_old, {t}_new TO {t}",
)


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize(
    "swap",
    [
        SWAP,
        (*SWAP[:2], "ALTER TABLE {t} RENAME {t}_old", "ALTER TABLE {t}_new RENAME {t}"),
        (
            *SWAP[:2],
            "DROP TABLE {t}",
            "RENAME TABLE {t}_new TO {t}",
            "CREATE TABLE {t}_old LIKE {t}",
        ),
    ],
)
def test_a_table_that_is_swapped(table: Database, swap: tuple[str, ...], is_running: bool) -> None:
    """No rows of the old table remain, and no changes of it are read."""
    table.do(*PLAIN)
    followed = table.follow().until_ids("1")
    if not is_running:
        followed.close()
    table.do("UPDATE {t} SET v = 'changed before'", *swap)
    table.do("INSERT INTO {t}_old VALUES (9, 'of the old one')")
    table.do("INSERT INTO {t} VALUES (8, 'eight')")
    if not is_running:
        followed.start()
    followed.until_ids("7", "8").settle()
    assert followed.objects == {"7": {"id": 7, "w": "seven"}, "8": {"id": 8, "w": "eight"}}


def test_a_swap_that_changes_the_primary_key(table: Database) -> None:
    table.do(*PLAIN)
    followed = table.follow().until_ids("1")
    table.do(
        "UPDATE {t} SET v = 'changed before'",
        "CREATE TABLE {t}_new (code varchar(9) PRIMARY KEY)",
        "INSERT INTO {t}_new VALUES ('a')",
        "RENAME TABLE {t} TO {t}_old, {t}_new TO {t}",
    )
    followed.until_ids("a")
    table.do("INSERT INTO {t} VALUES ('b')")
    followed.until_ids("a", "b")


def test_a_table_that_is_missing_for_a_while(table: Database) -> None:
    """The reader waits for it, and keeps the objects until it can compare."""
    table.do(*PLAIN)
    followed = table.follow().until_ids("1")
    table.do("DROP TABLE {t}")
    with pytest.raises(Away, match=r"no table has this name|doesn't exist"):
        followed.settle()
    with pytest.raises(Away, match="no table has this name"):
        followed.start()
    assert set(followed.objects) == {"1"}
    table.do("CREATE TABLE {t} (id int PRIMARY KEY)", "INSERT INTO {t} VALUES (2)")
    followed.start().until_ids("2")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {t} ADD extra int NOT NULL DEFAULT 5",
        "ALTER TABLE {t} DROP v",
        "ALTER TABLE {t} CHANGE v w text",
        "ALTER TABLE {t} MODIFY v int",
        "ALTER TABLE {t} ADD g int AS (id * 2) VIRTUAL, ADD s int AS (id * 3) STORED",
    ],
)
def test_columns_that_are_altered(table: Database, statement: str) -> None:
    """Each object equals its row, although the log has no row changes for an alteration."""
    table.do("SET sql_mode = ''", "CREATE TABLE {t} (id int PRIMARY KEY, v text)")
    table.do("INSERT INTO {t} VALUES (1, '1'), (2, '2')")
    followed = table.follow().until_ids("1", "2")
    table.do("UPDATE {t} SET id = 3 WHERE id = 2", statement, "INSERT INTO {t} (id) VALUES (4)")
    columns = {name for name, *_ in table.do("DESCRIBE {t}")}
    followed.until_ids("1", "3", "4").settle()
    assert all(set(each) == columns for each in followed.objects.values())
    table.do("UPDATE {t} SET id = 5 WHERE id = 4")
    followed.until_ids("1", "3", "5")
    assert set(followed.objects["5"]) == columns


def test_rows_that_a_foreign_key_changes(table: Database) -> None:
    """The change comes from a table two keys away, and the log contains only the change of that
    table."""
    table.do(
        "CREATE TABLE {t}_a (id int PRIMARY KEY, v int)",
        "CREATE TABLE {t}_b (id int PRIMARY KEY, a int REFERENCES {t}_a (id) ON DELETE CASCADE)",
        "CREATE TABLE {t} (id int PRIMARY KEY, b int, FOREIGN KEY (b) REFERENCES {t}_b (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE)",
        "INSERT INTO {t}_a VALUES (1, 0), (2, 0)",
        "INSERT INTO {t}_b VALUES (1, 1), (2, 2)",
        "INSERT INTO {t} VALUES (10, 1), (20, 2)",
    )
    followed = table.follow().until_ids("10", "20")
    table.do("UPDATE {t}_b SET id = 3 WHERE id = 2")
    followed.until(lambda: followed.objects["20"]["b"] == 3)
    table.do("DELETE FROM {t}_a WHERE id = 1")
    followed.until_ids("20")


def test_a_log_that_is_gone_deletes_what_went_with_it(table: Database) -> None:
    table.do(*PLAIN)
    followed = table.follow().until_ids("1")
    followed.close()
    table.do("DELETE FROM {t}", "INSERT INTO {t} VALUES (2, 'two')")
    followed.state[table.t]["server"] = 99
    followed.start().until_ids("2")


@pytest.mark.parametrize("later", ["new", "of another length"])
def test_a_log_that_was_begun_anew_is_another_one(table: Database, later: str) -> None:
    """RESET MASTER and a restored server use the name of its file again; with rows of one length,
    the old position is one of the new log.
    """
    table.do("CREATE TABLE {t} (id int PRIMARY KEY, v char(20))", "RESET MASTER")
    for n in range(10, 20):
        table.do(f"INSERT INTO {{t}} VALUES ({n}, 'old')")
    followed = table.follow()
    table.do("INSERT INTO {t} VALUES (20, 'old')")
    followed.until(lambda: "20" in followed.objects).settle().close()
    table.do("RESET MASTER")
    for n in range(30, 50):
        table.do(f"INSERT INTO {{t}} VALUES ({n}, '{later}')")
    followed.start().settle()
    assert set(followed.objects) == {str(n) for (n,) in table.do("SELECT id FROM {t}")}


@pytest.mark.parametrize("mode", ["complete", "copy"])
@pytest.mark.parametrize("count", [0, 11, 40])
def test_a_log_that_was_begun_again(table: Database, count: int, mode: str) -> None:
    """The reader copies the table again, whether or not the new log has an event at the old
    position."""
    table.do("CREATE TABLE {t} (id int PRIMARY KEY, v char(20))", "RESET MASTER")
    insert = "INSERT INTO {t} VALUES ({}, 'v')"
    for number in range(10):
        table.do(insert.replace("{}", str(number)))
    followed = table.follow()
    table.do(insert.replace("{}", "10"))
    followed.until(lambda: "10" in followed.objects).settle().close()
    followed.state[table.t]["mode"] = mode
    table.do("RESET MASTER", "DELETE FROM {t} WHERE id = 3")
    for number in range(count):
        table.do(insert.replace("{}", str(20 + number)))
    wanted = [str(number) for number in (*range(11), *range(20, 20 + count)) if number != 3]
    followed.start().until_ids(*wanted)
    table.do(insert.replace("{}", "99"))
    followed.until_ids(*wanted, "99").settle()


@pytest.mark.parametrize(
    ("change", "is_copied"),
    [
        (lambda at: at["log"].__setitem__(0, at["log"][0] - 1), True),  # another file
        (lambda at: at["log"].__setitem__(2, at["log"][2] ^ 1), True),  # another event
        (lambda at: at["log"].__setitem__(1, at["log"][1] + 1), True),  # no event begins there
        (lambda at: at.update(position=10**8, log=[at["log"][0]]), True),  # after the end
        (lambda at: at.update(uuid="another"), True),
        (lambda at: at.update(position=10**8) or at.pop("log"), True),
        (lambda at: at.pop("log") and at.pop("uuid"), False),  # of an earlier release
        (lambda at: None, False),
    ],
)
def test_a_log_of_another_history(table: Database, change: Any, is_copied: bool) -> None:
    """A restored server may have the same names; an update of Tidings copies nothing."""
    table.do(*PLAIN)
    followed = table.follow()
    number = 1
    while len(followed.state[table.t]["log"]) < 3:  # a batch may end within a transaction
        number += 1
        table.do(f"INSERT INTO {{t}} VALUES ({number}, 'more')")
        followed.until_ids(*map(str, range(1, number + 1)))
    followed.close()
    change(followed.state[table.t])
    followed.appended.clear()
    followed.start().settle()
    assert ("1" in [each["id"] for each in followed.appended]) == is_copied
    assert len(followed.state[table.t]["log"]) >= 1


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        ("TABLE {t} (id int)", {}, "has no primary key; give key="),
        ("TABLE {t} (id int, v int)", {"key": "id"}, r"the key \(id\) is not unique"),
        ("TABLE {t} (id int, v int, UNIQUE (id, v))", {"key": "id"}, "is not unique"),
        ("TABLE {t} (id text, UNIQUE (id(3)))", {"key": "id"}, "is not unique"),
        ("TABLE {t} (id int PRIMARY KEY)", {"key": "w"}, "no column 'w'; the columns are id"),
        ("VIEW {t} AS SELECT 1 AS id", {"key": "id"}, "a view cannot be followed"),
        ("TABLE other_{t} (id int)", {}, "no table has this name"),
    ],
)
def test_a_table_that_cannot_be_followed(
    table: Database, make: str, options: dict[str, Any], said: str
) -> None:
    table.do(f"CREATE {make}")
    with pytest.raises(WrongPipeline, match=said):
        table.reader(**options).start()


def test_a_user_who_may_not_read_the_log(table: Database) -> None:
    table.do(*PLAIN, "CREATE OR REPLACE USER weak IDENTIFIED BY 'x'")
    table.do("GRANT SELECT ON objects.{t} TO weak")
    reader = MySQLTable(table.url.replace("root@", "weak:x@"), table.t)
    problems, grants = reader.check("p.app")
    assert problems == ["the user may not see the log: GRANT REPLICATION CLIENT ON *.*"]
    assert grants == [
        f"GRANT SELECT ON objects.{table.t} TO 'weak'@'%';",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'weak'@'%';",
    ]
    table.do("GRANT REPLICATION CLIENT ON *.* TO weak")
    assert "GRANT REPLICATION SLAVE" in reader.check("p.app")[0][0]
    table.do(*(grant.removesuffix(";") for grant in grants))
    assert reader.check("p.app")[0] == []


def test_composite_keys_are_different_objects(table: Database) -> None:
    keys = [("x/y", "z"), ("x", "y/z"), ("x%2Fy", "z"), ("", "/"), ("/", ""), ("%", "/")]
    table.do("CREATE TABLE {t} (a varchar(9), b varchar(9), PRIMARY KEY (a, b))")
    table.do("INSERT INTO {t} VALUES " + ", ".join(f"('{a}', '{b}')" for a, b in keys))
    followed = table.follow()
    assert len(followed.objects) == len(keys)
    table.do("DELETE FROM {t} WHERE a = 'x/y'")
    followed.until(lambda: len(followed.objects) == len(keys) - 1)
    assert "x%2Fy/z" not in followed.objects
