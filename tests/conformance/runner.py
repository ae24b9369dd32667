"""Plays a case: its steps in turn, each a verb of one of the modules of steps."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance import (
    change_steps,
    consumer_steps,
    erasure_steps,
    feed_steps,
    listener_steps,
    replication_steps,
    steps,
    transport_steps,
)
from tests.conformance.catalogue import Case
from tests.conformance.scene import Scene
from tests.conformance.target import Target

_MODULES = (
    steps,
    transport_steps,
    change_steps,
    listener_steps,
    consumer_steps,
    replication_steps,
    erasure_steps,
    feed_steps,
)
STEPS: dict[str, Callable[[Scene, Any], None]] = {
    name.removeprefix("step_"): step
    for module in _MODULES
    for name, step in vars(module).items()
    if name.startswith("step_")
}

_STEP_CHARS_MAX = 300  # a step may hold a megabyte; its beginning identifies it


class Broken(AssertionError):
    """A law and the step at which the target broke it."""


def play(scene: Scene) -> None:
    """Do every step of the case.

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


def hold(target: Target, case: Case) -> None:
    """The test fails, with the step and not our own stack, where *target* breaks the law."""
    scene = Scene(target, case, f"c{secrets.token_hex(6)}")
    try:
        play(scene)
    except Broken as broken:
        pytest.fail(str(broken), pytrace=False)
    finally:
        scene.close()
