"""The composition root."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from tidings.aws import wiring


def test_each_part_is_built_once() -> None:
    """What a second guard has counted, the first one does not know. Ids alone differ each time."""
    built_again = [
        name
        for module in pkgutil.iter_modules(wiring.__path__)
        for name, part in vars(importlib.import_module(f"{wiring.__name__}.{module.name}")).items()
        if inspect.isfunction(part)
        and part.__module__.startswith(wiring.__name__)
        and not (name.startswith("_") or inspect.signature(part).parameters)
    ]
    assert built_again == ["new_id"]
