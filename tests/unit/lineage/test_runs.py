"""A single run: its events, the names of jobs and datasets, and a receiver that fails."""

from __future__ import annotations

import logging
import socket
import time
from pathlib import Path

import pytest
from openlineage.client.naming.dataset import S3, LocalFileSystem, Postgres

from tests.unit.lineage.receiver import Receiver, receiving
from tidings.lineage import datasets, runs
from tidings.lineage.datasets import Dataset
from tidings.lineage.runs import Event, Job, Run, State, without_secrets

JOB = Job("tidings.test", "SYNC")


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "tidings.lineage"]


def test_a_run_that_goes_on_is_told_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most one event a minute is sent, however often the run reports."""
    events: list[Event] = []
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    run = Run(JOB, events.append)
    run.start()
    for _ in range(10):
        now[0] += runs.RUNNING_S / 5
        run.running()
    assert [each.state for each in events] == [State.START, State.RUNNING, State.RUNNING]


def test_the_first_end_counts() -> None:
    """What failed does not complete."""
    events: list[Event] = []
    run = Run(JOB, events.append)
    run.end(State.FAIL, "away")
    run.end(State.COMPLETE)
    assert [(each.state, each.error) for each in events] == [(State.FAIL, "away")]


@pytest.mark.parametrize(
    ("error", "state"), [(ValueError("no"), State.FAIL), (KeyboardInterrupt(), State.ABORT)]
)
def test_what_ends_a_run_goes_on(receiver: Receiver, error: BaseException, state: State) -> None:
    """A failure fails it, Ctrl-C aborts it, and the exception is raised."""
    with pytest.raises(type(error)), runs.report_run(JOB):
        raise error
    assert receiver.states == [State.START, state]


def test_columns_and_the_name_in_a_catalog_are_facets(receiver: Receiver) -> None:
    """The facets are those of the OpenLineage client."""
    table = Dataset("file", "/lake/t", (("id", "string"), ("views", "bigint")), ("file:/lake", "t"))
    with runs.report_run(JOB, writes=[table]) as run:
        run.wrote(table, 3)
    (written,) = receiver.events[-1]["outputs"]
    fields = [(each["name"], each["type"]) for each in written["facets"]["schema"]["fields"]]
    assert fields == list(table.columns)
    (known,) = written["facets"]["symlinks"]["identifiers"]
    assert known == {"namespace": "file:/lake", "name": "t", "type": "TABLE"}
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 3


def test_a_secret_is_taken_out_of_an_error() -> None:
    """One that is known."""
    events: list[Event] = []
    run = Run(JOB, events.append, secrets=["", "hunter2"])
    run.end(State.FAIL, "refused: hunter2")
    assert events[0].error == "refused: ***" and "hunter2" not in repr(run)


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("at postgresql://me:pw@db/videos now", "at postgresql://db/videos now"),
        ("host=db password=pw user=me", "host=db password=*** user=me"),
        ("{'password': 'pw', 'host': 'db'}", "{'password': ***, 'host': 'db'}"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("https://host/x?api_key=pw&n=1", "https://host/x?api_key=***&n=1"),
        ("a table and a key", "a table and a key"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, public: str) -> None:
    """A secret in an unknown place is hidden too."""
    assert without_secrets(text) == public


def test_datasets_are_called_as_openlineage_calls_them(tmp_path: Path) -> None:
    """Our names are those of the client's own classes."""
    (tmp_path / "a [1].json").touch()
    folder = str(tmp_path)
    for address, name in (
        (f"{folder}/a [1].json", f"{folder}/a [1].json"),
        (f"{folder}/*/*.json", folder),
        (tmp_path.as_uri(), folder),
        (f"{folder}/", folder),
    ):
        made, theirs = datasets.of_files(address), LocalFileSystem(name)
        assert (made.namespace, made.name) == (theirs.get_namespace(), theirs.get_name())
    made, bucket = datasets.of_files("s3://parts/main/x/"), S3("parts", "main/x")
    assert (made.namespace, made.name) == (bucket.get_namespace(), bucket.get_name())
    server = datasets.server("postgresql://me:pw@DB.example/app", "postgres", 5432)
    assert server == Postgres("db.example", "5432", "app", "public", "t").get_namespace()


def test_an_address_is_without_its_user_and_path() -> None:
    """The query is removed too."""
    assert datasets.of_feed("https://me:pw@feed.example:444/x?key=pw", "main") == Dataset(
        "https://feed.example:444", "main"
    )
    assert datasets.server("http://[::1]:8042/") == "http://[::1]:8042"


@pytest.mark.parametrize("url", ["not an address", "http://127.0.0.1:1"])
def test_what_is_wrong_with_the_receiver_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    """This holds for an invalid address, and for one without a server."""
    monkeypatch.setattr(runs, "END_S", 20)
    monkeypatch.setenv("OPENLINEAGE_URL", url)
    with caplog.at_level(logging.WARNING), runs.report_run(JOB):
        pass
    assert len(logged(caplog)) == 1
    assert not [each for each in caplog.records if each.name.startswith("urllib3")]


def test_a_receiver_that_hangs_is_waited_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The wait is shorter than the client's own."""
    monkeypatch.setattr(runs, "END_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{hangs.getsockname()[1]}")
        begun = time.monotonic()
        with runs.report_run(JOB):
            pass
        took = time.monotonic() - begun
    assert took < 20  # the client alone would wait 5 s, six times
    assert logged(caplog) == [
        "lineage events were not sent, the work continues: not all events were sent within 1 s"
    ]


def test_one_that_refuses_is_asked_again_and_named_without_its_user(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log holds no password either."""
    with receiving(status=403) as refuses:
        monkeypatch.setenv("OPENLINEAGE_URL", refuses.url.replace("//", "//user:pass@"))
        with runs.report_run(JOB):
            pass
        assert refuses.states == ["START", "COMPLETE"]
    (said,) = logged(caplog)
    assert "403" in said and "pass@" not in said


def test_it_is_disabled_by_the_variable_of_the_client(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    """`OPENLINEAGE_DISABLED`."""
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    with runs.report_run(JOB):
        pass
    assert receiver.bodies == []
