"""Load the file of a pipeline: Python that makes one `Pipeline`."""

from __future__ import annotations

import runpy
import traceback
from pathlib import Path

from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.pipeline import Pipeline


def load(path: Path) -> Pipeline:
    """
    Return the one pipeline that *path* makes.

    Raises:
        WrongPipeline: the file fails, or makes no pipeline, several, or one without a store.
    """
    if not path.is_file():
        raise WrongPipeline(f"{path} is not there; `tidings pipeline init` writes one")
    try:
        made = runpy.run_path(str(path), run_name="pipeline")
    except WrongPipeline:
        raise
    except Exception as error:  # noqa: BLE001 the author's file may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise WrongPipeline(f"{path}{_line_of(error, path)}: {reason}") from None
    pipelines = {id(value): value for value in made.values() if isinstance(value, Pipeline)}
    if len(pipelines) != 1:
        raise WrongPipeline(f"{path} makes {len(pipelines)} pipelines; it must make one")
    (pipeline,) = pipelines.values()
    if not pipeline.branches:
        raise WrongPipeline(f"{path}: {pipeline.name} saves to no store")
    return pipeline


def _line_of(error: Exception, path: Path) -> str:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError) and error.lineno:
        lines = [error.lineno]
    return f", line {lines[-1]}" if lines else ""
