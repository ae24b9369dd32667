"""A database that was put back to a copy of its files, after a reader had read farther."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.pipelines import server
from tests.unit.pipelines.test_postgres_source import Database


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
