"""Report what a pipeline reads and writes as lineage; each store and each reader is a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from tidings.lineage import datasets
from tidings.lineage.datasets import Dataset
from tidings.lineage.events import Job, State
from tidings.lineage.runs import Run
from tidings.lineage.sender import Send, sending
from tidings.pipelines.append import READS
from tidings.pipelines.pipeline import Pipeline
from tidings.pipelines.retry_loop import Tell

_KIND = "PIPELINE"
_ENDS = {"failed": State.FAIL, "done": State.COMPLETE, "stopped": State.COMPLETE}


@runtime_checkable
class Named(Protocol):
    """A store or a reader that has names in lineage. It is optional for those of an author."""

    def datasets(self) -> Sequence[Dataset]: ...


@contextmanager
def telling(pipeline: Pipeline) -> Iterator[Tell]:
    """Yield a function that converts the events of a `Runner` to lineage."""
    with sending() as send:
        told = _Told(pipeline, send)
        try:
            yield told.tell
        finally:
            for run in told.runs.values():
                run.end(State.ABORT)


class _Told:
    def __init__(self, pipeline: Pipeline, send: Send) -> None:
        self._errors: dict[str, str] = {}
        source = pipeline.source
        feed = [datasets.of_feed(source.url, source.feed)]

        def run(name: str, reads: Sequence[Dataset], writes: Sequence[Dataset]) -> Run:
            job = Job(f"tidings.pipeline.{name}", _KIND, streams=True)
            return Run(job, send, reads, writes, [source.password])

        self.runs = {
            f"{READS}{name}": run(pipeline.reader(name), _named(reader), feed)
            for name, reader in pipeline.readers.items()
        } | {
            branch.name: run(pipeline.consumer(branch), feed, _named(branch.sink))
            for branch in pipeline.branches
        }

    def tell(self, event: dict[str, Any]) -> None:
        if event["kind"] == "boot":
            for run in self.runs.values():
                run.start()
        elif event["kind"] == "error":
            self._errors[event["path"]] = event["error"]
        elif event["kind"] == "metrics":
            self._went_on(event["path"], event["state"], event["written"])

    def _went_on(self, path: str, state: str, written: int) -> None:
        run = self.runs[path]
        if run.ended:
            return
        if len(run.writes) == 1:
            run.wrote(run.writes[0], written)
        if state in _ENDS:
            error = self._errors.get(path, "") if _ENDS[state] is State.FAIL else ""
            run.end(_ENDS[state], error)
        else:
            run.running()


def _named(end: object) -> Sequence[Dataset]:
    if not isinstance(end, Named):
        return ()
    try:
        return end.datasets()
    except Exception:  # noqa: BLE001 an invalid address fails its store, which reports it
        return ()
