"""Stages with roles for functions under test."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from infra.settings import STAGES, Producer, Stage
from tests.infra.templates import Template, synthesised

PRODUCER = Producer(
    "videos",
    "arn:aws:dynamodb:eu-west-1:123456789012:table/videos/stream/2026-01-01T00:00:00.000",
    {"type": "video", "id": "{{id}}"},
)
SOURCES: dict[str, dict[str, object]] = {"main": {"url": "https://feed.example/feeds/main"}}


def _complete() -> Stage:
    """Return a stage with a key of its own and everything that a stage may have."""
    keyed = next(stage for stage in STAGES if stage.customer_key)
    return replace(keyed, producers=(PRODUCER,), seats=True, sources=SOURCES)


def _least() -> Stage:
    """Return a stage without a key, with the parts of every stage, and a capture of a table."""
    return replace(STAGES[0], producers=(PRODUCER,))


KINDS = {"least": _least, "whole": _complete}


@cache
def template(kind: str) -> Template:
    """Synthesised once a process."""
    return synthesised(KINDS[kind]())


def deployed(function: str) -> str:
    """Return the name of *function* in these stages: that of a capture contains its table."""
    return f"{function}-{PRODUCER.name}" if function == "capture" else function
