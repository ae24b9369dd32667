"""What a million operations cost a stage, as CloudWatch reckons it from what it measures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch

from infra import prices
from infra.parts import measures
from infra.parts.function import TidingsFunction, memory_mb
from infra.parts.tables import Tables
from infra.prices import Price
from infra.settings import Stage

_MB_MS = 1024 * 1000  # of a GB-second


@dataclass(frozen=True, slots=True)
class Paid:
    """What is measured under ids that begin with *name*, each at so many dollars."""

    name: str
    metrics: Sequence[cloudwatch.IMetric]
    dollars: float

    @property
    def used(self) -> dict[str, cloudwatch.IMetric]:
        return {f"{self.name}{at}": metric for at, metric in enumerate(self.metrics)}

    @property
    def term(self) -> str:
        """Where nothing was measured it is nothing."""
        return f"FILL(SUM([{','.join(self.used)}]), 0) * {self.dollars:.15f}"


def per_million(
    stage: Stage,
    functions: Sequence[TidingsFunction],
    tables: Tables,
    apis: Sequence[tuple[cloudwatch.IMetric, Price]],
) -> cloudwatch.MathExpression:
    """
    Units of DynamoDB, calls and time of Lambda, requests and messages, at the prices of
    `infra.prices`: what grows with use. Storage and what stands still are in COSTS.md.
    """
    paid = [*_units(tables), *_calls(stage, functions), *_requests(apis)]
    used = {name: metric for each in paid for name, metric in each.used.items()}
    dollars = " + ".join(each.term for each in paid)
    return cloudwatch.MathExpression(
        expression=f"1000000 * ({dollars}) / operations",
        using_metrics=used | {"operations": measures.of_feed("OperationsIngested", stage)},
        label="dollars",
        period=measures.PERIOD,
    )


def _one(price: Price) -> float:
    return price.dollars / price.per


def _units(tables: Tables) -> Iterator[Paid]:
    for kind, price in (("Write", prices.WRITE_UNIT), ("Read", prices.READ_UNIT)):
        name = f"Consumed{kind}CapacityUnits"
        consumed = [
            table.metric(name, statistic="Sum", period=measures.PERIOD)
            for table in tables.by_name.values()
        ]
        yield Paid(kind.lower(), consumed, _one(price))


def _calls(stage: Stage, functions: Sequence[TidingsFunction]) -> Iterator[Paid]:
    names = [each.function.function_name for each in functions]
    calls = [measures.of_function("Invocations", name) for name in names]
    yield Paid("calls", calls, _one(prices.INVOCATION))
    by_memory: defaultdict[int, list[cloudwatch.IMetric]] = defaultdict(list)
    for each, name in zip(functions, names, strict=True):
        by_memory[memory_mb(each.blueprint, stage)].append(measures.of_function("Duration", name))
    for size_mb, took in sorted(by_memory.items()):
        yield Paid(f"took{size_mb}mb", took, size_mb / _MB_MS * _one(prices.GB_SECOND))


def _requests(apis: Sequence[tuple[cloudwatch.IMetric, Price]]) -> Iterator[Paid]:
    for at, (metric, price) in enumerate(apis):
        yield Paid(f"asked{at}api", [metric], _one(price))
