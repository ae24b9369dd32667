"""PostgreSQL through PgBouncer, which gives a server's session to another client at any time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import chown

import psycopg
import pytest

from tests.unit.pipelines.conftest import started
from tests.unit.pipelines.followed import known
from tests.unit.pipelines.installed import pgbouncer_program
from tests.unit.pipelines.messages import video
from tests.unit.pipelines.real_stores import daemon, table_of
from tidings.pipelines import Postgres, PostgresTable, postgres
from tidings.pipelines.messages import WrongPipeline
from tidings.server.processes import free_port
from tidings.sync.postgres import BadTable, Mapping
from tidings.sync.postgres import PostgresTable as Compared

_USER = "postgres" if os.geteuid() == 0 else None  # PgBouncer does not run as root
_SETTINGS = """[databases]
postgres = host={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = {size}
server_round_robin = {turns}
query_wait_timeout = 1
ignore_startup_parameters = options,extra_float_digits
"""


pytestmark = pytest.mark.pgbouncer


@contextmanager
def pool(database: str, mode: str, size: int = 2, turns: int = 0) -> Iterator[str]:
    """Yield the address of a PgBouncer for *database*, with at most *size* connections."""

    @contextmanager
    def running(folder: Path) -> Iterator[str]:
        port, pgbouncer = free_port(), pgbouncer_program()
        assert pgbouncer is not None
        server = database.partition("host=")[2].partition(" ")[0]
        made = {"server": server, "port": port, "folder": folder, "mode": mode, "size": size}
        (folder / "users").write_text('"tidings" ""\n')
        (folder / "settings").write_text(_SETTINGS.format(**made, turns=turns))
        for path in (folder, *folder.iterdir()):
            chown(path, _USER or os.geteuid())
        url = f"host=127.0.0.1 port={port} user=tidings dbname=postgres"
        command = [pgbouncer, *(("-u", _USER) if _USER else ()), folder / "settings"]
        with daemon(command, folder / "log", lambda: psycopg.connect(url).close()):
            yield url

    with started(running) as url:
        yield url


def test_stores_share_a_pool(database: str) -> None:
    """Rows of each are in its own table, whichever session of the server writes them."""
    with pool(database, "transaction") as url, psycopg.connect(url, prepare_threshold=None) as held:
        stores = {name: Postgres(url, f"pooled_{name}") for name in "ab"}
        for store in stores.values():
            store.open("p.table")
        for n in range(24):
            if n % 3 == 0:  # load moves the stores to the other session
                held.rollback()
                held.execute("SELECT 1")
            for name, store in stores.items():
                store.write([video("insert", f"{name}{n}", n + 1)], 1)
        for name, store in stores.items():
            store.close()
            assert set(table_of(database, f"pooled_{name}")) == {f"{name}{n}" for n in range(24)}


@pytest.mark.parametrize(("size", "turns"), [(1, 0), (2, 0), (2, 1), (3, 1)])
def test_a_reader_refuses_a_pool_that_shares_sessions(database: str, size: int, turns: int) -> None:
    """Its settings would reach other clients. No setting is made before this is known."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS pooled (id int PRIMARY KEY)")
    with pool(database, "transaction", size, turns) as url:
        with pytest.raises(WrongPipeline, match=r"pool.* address of the server"):
            PostgresTable(url, "pooled", follow=False).open("p.r", {}, known)
        with pytest.raises(WrongPipeline, match="pool"):
            PostgresTable(url, "pooled").check("p.r")
        with pytest.raises(BadTable, match="pool"):
            Compared(url, "pooled", Mapping())
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
            zones = {other.execute("SHOW bytea_output").fetchone() for _ in range(2 * size)}
            zones |= {other.execute("SHOW statement_timeout").fetchone() for _ in range(2 * size)}
    assert zones == {("hex",), ("0",)}


@pytest.mark.parametrize("size", [1, 2])
def test_a_reader_accepts_a_pool_that_keeps_sessions(
    database: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the pool has no second session."""
    monkeypatch.setattr(postgres, "CHECK_S", 0.5)
    with pool(database, "session", size) as url, closing(postgres.connect(url)) as connection:
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)


@pytest.mark.parametrize("is_url", [False, True])
def test_the_options_of_an_address_are_kept(database: str, is_url: bool) -> None:
    """The path to a schema, for a store, a reader and a comparison, with limits of their own."""
    schema = f"app_{is_url}".lower()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.films (id int PRIMARY KEY)")
    host = database.partition("host=")[2].partition(" ")[0].replace("/", "%2F")
    path = f"search_path%3D{schema}"
    url = f"postgresql://tidings@{host}/postgres?options=-c%20{path}"
    dsn = url if is_url else f"{database} options='-c search_path={schema}'"
    store = Postgres(dsn, "objects")
    store.open("p.table")
    store.write([video("insert", "a", 1)], 1)
    store.close()
    assert set(table_of(database, f"{schema}.objects")) == {"a"}
    assert PostgresTable(dsn, "films", follow=False).check("p.r")[0] == []
    Compared(dsn, "films", Mapping()).close()


def test_a_batch_ends_if_a_table_is_locked(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a statement holds for its transaction only."""
    store = Postgres(database, "locked")
    store.open("p.table")
    monkeypatch.setattr(postgres, "_TIMEOUT", b"SET LOCAL statement_timeout = 200")
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE locked")
        with pytest.raises(psycopg.errors.QueryCanceled):
            store.write([video("insert", "a", 1)], 1)
    store.write([video("insert", "a", 1)], 1)
    assert store._connect().execute("SHOW statement_timeout").fetchone() == ("0",)
    store.close()
