"""Plays a case: its steps in turn, each a verb of one of the modules of steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance import (
    change_steps,
    consumer_steps,
    listener_steps,
    portion_steps,
    steps,
    transport_steps,
)
from tests.conformance.scene import Scene

_MODULES = (
    steps,
    transport_steps,
    change_steps,
    listener_steps,
    consumer_steps,
    portion_steps,
)
STEPS: dict[str, Callable[[Scene, Any], None]] = {
    name.removeprefix("step_"): step
    for module in _MODULES
    for name, step in vars(module).items()
    if name.startswith("step_")
}

_STEP_CHARS_MAX = 300  # a step may hold a megabyte; its beginning tells which one it is


class Broken(AssertionError):
    """A law and the step at which the target broke it."""


def play(scene: Scene) -> None:
    """
    Do every step of the case.

    Raises:
        Broken: the target does not keep the law.
    """
    case = scene.case
    proof = [("nothing_more", "proof")] if case.writes_nothing else []
    if case.writes_nothing:
        scene.open("proof", scene.target.transports[0], {})
    for number, (verb, argument) in enumerate([*case.steps, *proof], 1):
        try:
            STEPS[verb](scene, scene.ready(argument))
        except AssertionError as error:
            where = f"step {number}, {verb}: {argument}"
            raise Broken(f"{case.law}\n{where[:_STEP_CHARS_MAX]}\n{error}") from error
