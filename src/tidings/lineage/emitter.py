"""Convert the events to OpenLineage's classes, and send them by its client."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from openlineage.client import OpenLineageClient, set_producer
from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent, RunState
from openlineage.client.event_v2 import Job as LineageJob
from openlineage.client.event_v2 import Run as LineageRun
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
    schema_dataset,
    symlinks_dataset,
)

from tidings.core.model import timestamps
from tidings.core.version import VERSION

if TYPE_CHECKING:
    from tidings.lineage.datasets import Dataset
    from tidings.lineage.events import Counted, Event, Job

PRODUCER = f"urn:tidings:{VERSION}"
NAMESPACE = "OPENLINEAGE_NAMESPACE"  # of jobs; OpenLineage's integrations use this name
DEFAULT_NAMESPACE = "default"


class Emitter:
    """
    An OpenLineage client, configured by its environment and files.

    Raises:
        Exception: any error of the client, if its configuration is wrong.
    """

    def __init__(self) -> None:
        set_producer(PRODUCER)
        where = os.environ.get(NAMESPACE, "")  # noqa: TID251 read by OpenLineage's integrations
        self._namespace = where or DEFAULT_NAMESPACE
        self._client = OpenLineageClient()

    def emit(self, event: Event) -> None:
        """
        Send *event*.

        Raises:
            Exception: any error of the transport.
        """
        self._client.emit(made(event, self._namespace))

    def close(self, timeout_s: float) -> None:
        self._client.close(timeout_s)


def made(event: Event, namespace: str) -> RunEvent:
    """Return *event* of a job in *namespace* as an OpenLineage event."""
    facets: dict[str, RunFacet] = {}
    if event.error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(event.error, "Python")
    return RunEvent(
        eventType=RunState(event.state),
        eventTime=timestamps.from_ms(event.at_ms),
        run=LineageRun(event.run, facets),
        job=_job(event.job, namespace),
        inputs=list(map(_input, event.inputs)),
        outputs=list(map(_output, event.outputs)),
    )


def _job(job: Job, namespace: str) -> LineageJob:
    processing = "STREAMING" if job.streams else "BATCH"
    kind = job_type_job.JobTypeJobFacet(processing, "TIDINGS", job.kind)
    return LineageJob(namespace, job.name, {"jobType": kind})


def _input(counted: Counted) -> InputDataset:
    dataset, rows = counted.dataset, counted.rows
    counts: dict[str, InputDatasetFacet] = {}
    if rows is not None:
        statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        counts["inputStatistics"] = statistics(rowCount=rows)
    return InputDataset(
        dataset.namespace, dataset.name, inputFacets=counts, facets=_facets(dataset)
    )


def _output(counted: Counted) -> OutputDataset:
    dataset, rows = counted.dataset, counted.rows
    counts: dict[str, OutputDatasetFacet] = {}
    if rows is not None:
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        counts["outputStatistics"] = statistics(rowCount=rows)
    return OutputDataset(
        dataset.namespace, dataset.name, outputFacets=counts, facets=_facets(dataset)
    )


def _facets(dataset: Dataset) -> dict[str, DatasetFacet]:
    facets: dict[str, DatasetFacet] = {}
    if dataset.columns:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in dataset.columns
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if dataset.table:
        known = symlinks_dataset.Identifier(*dataset.table, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet([known])
    return facets
