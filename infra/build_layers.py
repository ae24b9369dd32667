"""
Builds the layers of third-party wheels, for the machine Lambda runs them on.

`functions` is under every function, `stream` under the streaming function alone; `tokens` takes the
place of `functions` in a stage that takes tokens, because a function has five layers at most.
boto3 is part of Lambda's runtime and not shipped. Versions are those of this environment: what was
tested is what is deployed. A layer is built again only when its requirements changed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from infra import locked, turns
from infra.locked import NotInstalled
from infra.paths import VENDOR

PYTHON = "3.13"
PLATFORM = "manylinux2014_aarch64"
_FOR_LAMBDA = ("--platform", PLATFORM, "--python-version", PYTHON)
_SHARED = ("aws-lambda-powertools", "bcrypt", "jmespath", "pyyaml", "typing-extensions")
LAYERS = {
    "functions": _SHARED,
    "tokens": (*_SHARED, "pyjwt", "cryptography", "cffi", "pycparser"),
    "stream": ("uvicorn", "h11", "click"),
}


class LayerNotBuilt(Exception):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"layer {name} was not built: {why}")


def build(name: str, *, vendor: Path = VENDOR) -> Path:
    """
    The folder of layer *name*, built first where it is missing or out of date.

    Raises:
        LayerNotBuilt: the lock lacks a wheel, its sum differs, or there is no network.
    """
    folder, stamp = vendor / name, vendor / f"{name}.txt"
    wanted = "\n".join(requirements(name)) + "\n"
    with turns.turn(vendor):
        if not (stamp.is_file() and stamp.read_text() == wanted and (folder / "python").is_dir()):
            _install(name, folder / "python")
            stamp.write_text(wanted)
    return folder


def requirements(name: str) -> list[str]:
    """What the layer holds, closed under dependencies (a test compares it with the metadata)."""
    return locked.pinned(LAYERS[name])


def _install(name: str, target: Path) -> None:
    try:
        locked.install(target, requirements(name), _FOR_LAMBDA)
    except NotInstalled as problem:
        raise LayerNotBuilt(name, str(problem)) from None
    shutil.rmtree(target / "bin", ignore_errors=True)


def main() -> None:
    try:
        for name in LAYERS:
            build(name)
    except LayerNotBuilt as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
