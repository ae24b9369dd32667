"""
What a stage may have any number of, in stacks of its own: a stack has room for 500 resources.

A producer has eleven and a pipeline twelve, and nothing else of the stage refers to them.
"""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct
from tidings.aws.config.stages import stack_name

from infra import suppressions
from infra.names import title
from infra.parts.pipeline_job import PipelineJob
from infra.parts.table_producer import TableProducer, reach_of
from infra.settings import Stage


class ProducersStack(cdk.Stack):
    """The tables that *stage* follows, as a stack of their owner would have it."""

    def __init__(self, scope: Construct, stage: Stage) -> None:
        name = f"{stack_name(stage.name)}-producers"
        super().__init__(scope, name, description=f"Tidings, {stage.name}: tables that produce")
        reach = reach_of(self, stage)
        for producer in stage.producers:
            called = f"Producer{title(producer.name)}"
            TableProducer(self, called, stage=stage, producer=producer, reach=reach)
        suppressions.apply(self)


class PipelinesStack(cdk.Stack):
    """The pipelines that *stage* keeps running."""

    def __init__(self, scope: Construct, stage: Stage) -> None:
        name = f"{stack_name(stage.name)}-pipelines"
        super().__init__(scope, name, description=f"Tidings, {stage.name}: pipelines")
        for run in stage.pipelines:
            PipelineJob(self, f"Pipeline{title(run.name)}", stage=stage, run=run)
        suppressions.apply(self)
