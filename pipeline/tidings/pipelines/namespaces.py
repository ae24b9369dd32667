"""Which messages a step or a store is for."""

from __future__ import annotations

import re

from tidings.pipelines.errors import WrongPipeline

EVERYTHING = "/.*/"


def matcher(namespace: str) -> re.Pattern[str]:
    """
    A regular expression, with or without slashes around it, found anywhere in a namespace.

    Raises:
        WrongPipeline: it is none.
    """
    try:
        return re.compile(namespace.strip("/"))
    except re.error as error:
        raise WrongPipeline(f"namespace {namespace!r} is no regular expression: {error}") from None
