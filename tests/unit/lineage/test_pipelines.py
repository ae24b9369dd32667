"""The lineage events of a pipeline: each store and each reader is a job, and no name has a
secret."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.naming import dataset as naming

from tests.unit.lineage.receiver import Receiver
from tidings import pipelines
from tidings.lineage import runs
from tidings.lineage.runs import State
from tidings.pipelines import Pipeline, Source
from tidings.pipelines.events import report_lineage
from tidings.pipelines.templates import SINKS, SOURCES
from tidings.server.running import Server

SECRET = "hunter2hunter2"
FILE = """
from tidings.pipelines import Files, Ndjson, Pipeline, Postgres, Source

def refuse(message):
    raise ValueError("password=" + {secret!r})

pipeline = Pipeline("copy", Source({url!r}, password={secret!r}, start="oldest"))
pipeline.read("in", Files("in.json", type="video"))
pipeline.save("lines", Ndjson("out.json"))
pipeline.save("table", Postgres("postgresql://me:{secret}@127.0.0.1:1/app"), refuse)
"""


def test_each_path_is_a_job(tmp_path: Path, receiver: Receiver) -> None:
    """A reader writes the feed, a store reads it; a failed path does not fail the others."""
    rows = [{"id": "a"}, {"id": "b"}]
    (tmp_path / "in.json").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    with Server() as server:
        (tmp_path / "pipeline.py").write_text(FILE.format(url=server.url, secret=SECRET))
        options = ["--json", "--lineage", "--attempts", "1"]
        program = [sys.executable, "-m", "tidings.client.cli.main", "pipeline", "run", *options]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr

    of = {each: _of(receiver, f"tidings.pipeline.copy.{each}") for each in ("in", "lines", "table")}
    states = {name: [each["eventType"] for each in events] for name, events in of.items()}
    assert states == {
        "in": ["START", "COMPLETE"],
        "lines": ["START", "COMPLETE"],
        "table": ["START", "FAIL"],
    }
    feed = server.url.rstrip("/"), "main"
    last = {name: events[-1] for name, events in of.items()}
    ends = {name: (_ends(each, "inputs"), _ends(each, "outputs")) for name, each in last.items()}
    assert ends == {
        "in": ([("file", str(tmp_path / "in.json"))], [feed]),
        "lines": ([feed], [("file", str(tmp_path / "out.json"))]),
        "table": ([feed], [("postgres://127.0.0.1:1", "app.public.objects")]),
    }
    rows_of = {name: _rows(each) for name, each in last.items()}
    assert rows_of == {"in": 2, "lines": 2, "table": 0}
    assert of["lines"][0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert "errorMessage" in of["table"][-1]["run"]["facets"]
    assert not [each for each in receiver.bodies if SECRET in each]


def test_one_that_goes_on_is_told(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipeline that does not end in order is aborted."""
    monkeypatch.setattr(runs, "RUNNING_S", 0)
    pipeline = Pipeline("p", Source("http://me:pw@feed.example/x")).save("a", pipelines.Call(print))
    with report_lineage(pipeline) as tell:
        tell({"kind": "boot", "stores": ["a"]})
        while not receiver.bodies:
            """The client is there, and no event waits."""
        tell({"kind": "metrics", "path": "a", "state": "running", "written": 3})
    assert receiver.states == [State.START, State.RUNNING, State.ABORT]
    assert _ends(receiver.events[1], "inputs") == [("http://feed.example", "main")]
    assert receiver.events[1]["outputs"] == []


@pytest.mark.parametrize("sample", [*SOURCES.values(), *SINKS.values()], ids=lambda each: each.name)
def test_every_store_and_source_has_a_name_without_secrets(sample: Any) -> None:
    """Functions are the exception, as it is unknown what they do."""
    made = eval(sample.text, {name: getattr(pipelines, name) for name in (sample.name,)})
    if sample.name in ("Call", "Frame"):
        assert not hasattr(made, "datasets")
        return
    (dataset,) = made.datasets()
    assert "secret" not in repr(dataset) and "me" not in dataset.namespace.split(":")[-1]
    wanted = {
        "Postgres": naming.Postgres("localhost", "5432", "videos", "public", "objects"),
        "Table": naming.Postgres("localhost", "5432", "app", "public", "videos"),
        "MySQL": naming.MySQL("localhost", "3306", "videos", "objects"),
        "MySQLTable": naming.MySQL("localhost", "3306", "app", "videos"),
        "Kafka": naming.Kafka("localhost", "9092", "objects"),
        "KafkaTopics": naming.Kafka("localhost", "9092", "app.public.videos"),
    }
    if sample.name in wanted:
        theirs = wanted[sample.name]
        names = theirs.get_namespace(), theirs.get_name()
        assert (dataset.namespace, dataset.name) == names


@pytest.mark.parametrize(
    ("dsn", "table", "namespace", "name"),
    [
        ("host=db port=6432 dbname=app password=pw", "t", "postgres://db:6432", "app.public.t"),
        ("postgresql://me:pw@a,b/app", "s.t", "postgres://a:5432", "app.s.t"),
        ("postgresql:///app?host=/var/run", "t", "postgres://localhost:5432", "app.public.t"),
    ],
)
def test_a_table_of_postgresql(dsn: str, table: str, namespace: str, name: str) -> None:
    """By the first of several hosts, and never by a folder of sockets."""
    from tidings.pipelines.postgres import table_of

    made = table_of(dsn, table)
    assert (made.namespace, made.name) == (namespace, name)


def test_an_address_that_is_none_has_no_name(receiver: Receiver) -> None:
    """It fails its store, not the pipeline."""
    store = pipelines.Postgres("host=")
    store._dsn = "no address"
    with report_lineage(Pipeline("p", Source("http://feed")).save("a", store)) as tell:
        tell({"kind": "boot", "stores": ["a"]})
    assert receiver.events[0]["outputs"] == []


def _of(receiver: Receiver, job: str) -> list[dict[str, Any]]:
    return [each for each in receiver.events if each["job"]["name"] == job]


def _ends(event: dict[str, Any], side: str) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in event[side]]


def _rows(event: dict[str, Any]) -> int:
    (output,) = event["outputs"]
    return int(output["outputFacets"]["outputStatistics"]["rowCount"])
