"""`tidings pipeline` as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from tidings import pipelines
from tidings.client.cli.main import main
from tidings.pipelines.templates import SINKS, SOURCES

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", *arguments], catch_exceptions=False)


def test_every_source_and_store_is_offered_and_described() -> None:
    """Each is in `tidings.pipelines`, in `init` and `about`, and in a table of the guides."""
    guide = "".join(page.read_text() for page in ROOT.glob("docs/guides/PIPELINE_*.md"))
    classes = {name: getattr(pipelines, name) for name in pipelines._MODULES}
    sources = {name for name, each in classes.items() if hasattr(each, "read")} - {"Pipeline"}
    sinks = {name for name, each in classes.items() if hasattr(each, "write")}
    assert {key: sample.name for key, sample in SINKS.items()} == {n.lower(): n for n in sinks}
    assert {key: sample.name for key, sample in SOURCES.items()} == {n.lower(): n for n in sources}
    assert [name for name in sources | sinks if f"\n| `{name}(" not in guide] == []


def test_T40_init_writes_what_test_shows(tmp_path: Path) -> None:
    """The file has each of the given stores; an unreachable database is not checked."""
    file = tmp_path / "pipeline.py"
    reads = [part for each in SOURCES for part in ("--read", each)]
    done = run("init", *SINKS, *reads, "--file", str(file), "--name", "videos")
    assert (done.exit_code, done.stdout) == (0, f"wrote {file}\n")
    file.write_text(file.read_text().replace("//127.0.0.1:8042", "//127.0.0.1:1"))
    shown = run("test", str(file))
    assert (shown.exit_code, shown.stderr) == (1, "")
    *lines, table, rows, documents = shown.stdout.splitlines()
    kinds = {"postgrestable": table, "mysqltable": rows, "mongocollection": documents}
    for name, line in kinds.items():
        assert line.startswith(f"{name}: ")
        assert "not checked, the server cannot be reached: " in line
    assert lines == [
        "videos: feed main at http://127.0.0.1:1, from copy",
        "- reads files: files in/*.json",
        "- reads postgrestable: table videos at local/app",
        "- reads mysqltable: table videos at localhost/app",
        "- reads mongocollection: collection videos at localhost/app",
        "- reads kafkatopics: kafka app.public.videos at localhost:9092",
        "- reads rabbitmqqueue: rabbitmq videos at localhost",
        "- reads sqsqueue: sqs in.fifo",
        "- reads frame: video by <lambda>",
        "- postgres: table objects at local/videos",
        "  - transform",
        "- search: index objects at search.example",
        "  - transform",
        "- parquet: Parquet files in objects",
        "  - transform",
        "- ndjson: lines in objects.json",
        "  - transform",
        "- feed: feed main at https://feed.example",
        "  - transform",
        "- mysql: table objects at localhost/videos",
        "  - transform",
        "- mongodb: collection objects at localhost/videos",
        "  - transform",
        "- redis: hash objects at localhost/0",
        "  - transform",
        "- rabbitmq: rabbitmq objects at localhost",
        "  - transform",
        "- kafka: kafka objects at localhost:9092",
        "  - transform",
        "- sqs: sqs objects.fifo",
        "  - transform",
        "- sns: sns objects.fifo",
        "  - transform",
        "- eventbridge: events default",
        "  - transform",
        "- kinesis: kinesis objects",
        "  - transform",
        "- call: function print",
        "  - transform",
    ]


def test_init_accepts_the_usual_names(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    reads = ["--read", "MariaDB", "--read", "postgresql", "--read", "kafka"]
    assert run("init", "mysql", "elasticsearch", *reads, "--file", str(file)).exit_code == 0
    text = file.read_text()
    assert 'pipeline.save("search", Search(' in text
    assert [name for name in ("MySQL(", "MySQLTable(", "PostgresTable(") if name not in text] == []
    assert run("init", "elastic", "--file", str(file)).exit_code == 2
    assert pipelines.Elasticsearch is pipelines.OpenSearch is pipelines.Search


def test_test_checks_the_tables_that_are_read(database: str, tmp_path: Path) -> None:
    """Print what is missing and the grants; exit code 3 if a table cannot be followed."""
    file = tmp_path / "pipeline.py"
    file.write_text(
        "from tidings.pipelines import Call, Pipeline, PostgresTable, Source\n"
        "p = Pipeline('p', Source('http://127.0.0.1:1')).save('c', Call(print))\n"
        f"p.read('a', PostgresTable({database!r}, 'checked'))\n"
    )
    with psycopg.connect(database, autocommit=True) as connection:
        missing = run("test", str(file))
        connection.execute("CREATE TABLE checked (id int, v text)")
        unkeyed = run("test", str(file))
        connection.execute("ALTER TABLE checked ADD PRIMARY KEY (id)")
        ready = run("test", str(file))
        published = connection.execute("SELECT pubname FROM pg_publication").fetchall()
        connection.execute("DROP TABLE checked")
    assert (missing.exit_code, unkeyed.exit_code, ready.exit_code) == (3, 3, 0)
    assert "no table has this name" in missing.stdout
    assert "a: it has no primary key; give key=" in unkeyed.stdout
    assert ready.stdout.splitlines()[-5:] == [
        "a: can be read",
        "a: the database user needs",
        '  GRANT SELECT ON checked TO "tidings";',
        '  ALTER ROLE "tidings" REPLICATION;',
        "  CREATE PUBLICATION tidings_p_a FOR TABLE checked;",
    ]
    assert ("tidings_p_a",) not in published


def test_T40_init_overwrites_nothing_unasked(tmp_path: Path) -> None:
    """Without a terminal to answer on, the file stays."""
    file = tmp_path / "pipeline.py"
    file.write_text("mine")
    done = run("init", "ndjson", "--file", str(file))
    assert (done.exit_code, file.read_text()) == (1, "mine")
    assert "exists and was left as it is" in done.stderr
    assert run("init", "ndjson", "--file", str(file), "--force").exit_code == 0
    assert file.read_text() != "mine"


def test_about() -> None:
    """Every source and store, and how each is written."""
    listed = run("about").stdout.splitlines()
    assert [line.partition(" - ")[0] for line in listed] == [*SOURCES, *SINKS]
    assert 'Parquet("objects")' in run("about", "parquet").stdout
    assert "pip install '.[flow]'" in run("about", "parquet").stdout
    assert "pip install" not in run("about", "ndjson").stdout
    assert run("about", "rethinkdb").exit_code == 2


def test_what_has_to_be_installed_is_said() -> None:
    """A store without its library names the extra to install; every such extra exists."""
    code = (
        "import sys; sys.modules['botocore'] = None\n"
        "from tidings.pipelines import Ndjson\n"
        "from tidings.pipelines import Sqs"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "; for Sqs, install the extra `flow-aws`, in a checkout: pip install '.[flow-aws]'"
        " (docs/start/INSTALL.md)" in done.stderr.splitlines()[-1]
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {sample.extra for sample in (*SINKS.values(), *SOURCES.values())} - {""}
    assert extras - set(project["optional-dependencies"]) == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist; `tidings pipeline init` writes such a file"),
        ("x = 1", "creates 0 pipelines"),
        ("a = (", "line 1: SyntaxError"),
        ("a = 1\nb = a + c", "line 2: NameError: name 'c' is not defined"),
        ("{head}\nPipeline('p', s)\nPipeline('q', s)\na = Pipeline('r', s)", "has no store"),
        ("{head}\na, b = Pipeline('p', s), Pipeline('q', s)", "creates 2 pipelines"),
        ("{head}\np = Pipeline('', s)", "the name of a pipeline must have"),
        ("{head}\np = Pipeline('p', s, cofnig=1)", "unexpected keyword argument 'cofnig'"),
    ],
)
def test_T39_a_file_that_cannot_run_says_why(tmp_path: Path, text: str | None, said: str) -> None:
    """The error has the line; the exit code is 1."""
    file = tmp_path / "pipeline.py"
    head = "from tidings.pipelines import Pipeline, Source\ns = Source('http://127.0.0.1:1')"
    if text is not None:
        file.write_text(text.replace("{head}", head))
    done = run("test", str(file))
    assert (done.exit_code, done.stdout) == (1, "")
    assert said in done.stderr


def test_what_a_store_knows_of_secrets_is_not_shown(tmp_path: Path) -> None:
    """This holds for addresses and for feeds."""
    file = tmp_path / "pipeline.py"
    file.write_text(
        "from tidings.pipelines import Feed, MySQL, Pipeline, Postgres, Redis, Source\n"
        "p = Pipeline('p', Source('http://127.0.0.1:1', password='s3cret'))\n"
        "p.save('a', Postgres('postgresql://me:s3cret@host/base'))\n"
        "p.save('b', Postgres('host=h password=s3cret dbname=base'))\n"
        "p.save('e', MySQL('mysql://me:s3cret@host/base'))\n"
        "p.save('d', Redis('redis://me:s3cret@host/0'))\n"
        "p.save('c', Feed('http://127.0.0.1:2', password='s3cret'))\n"
    )
    done = run("test", str(file))
    assert done.exit_code == 0
    assert "s3cret" not in done.stdout
    assert "table objects at host=h dbname=base" in done.stdout
    assert json.dumps(done.stderr) == '""'
