"""
Builds the layers of third-party wheels, for the machine Lambda runs them on.

`functions` is under every function, `stream` under the streaming function alone; `tokens` takes the
place of `functions` in a stage that takes tokens, because a function has five layers at most.
Versions are those of this environment: what was tested is what is deployed, botocore among it,
which Lambda's runtime has in another version. A layer is built again when what it is made of
changed.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from infra import locked, sdk, turns
from infra.locked import NotInstalled
from infra.paths import VENDOR

PLATFORM = "manylinux2014_aarch64"
_FOR_LAMBDA = ("--platform", PLATFORM, "--python-version", sdk.PYTHON)
_SHARED = (
    "aws-lambda-powertools",
    "bcrypt",
    "httptools",
    "jmespath",
    "pyyaml",
    "typing-extensions",
    *sdk.PACKAGES,
)
LAYERS = {
    "functions": _SHARED,
    "tokens": (*_SHARED, "pyjwt", "cryptography", "cffi", "pycparser"),
    "stream": ("uvicorn", "h11", "click"),
}


_UNCOMPILED = (
    "layer {name}: there is no python{python} here, so it is not compiled, and each function takes"
    " some 0.4 s longer to start\n"
)


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
    program = sdk.compiler()
    wanted = "\n".join([*requirements(name), *_made_by(name, program)]) + "\n"
    with turns.turn(vendor):
        if not (stamp.is_file() and stamp.read_text() == wanted and (folder / "python").is_dir()):
            _install(name, folder / "python", program)
            stamp.write_text(wanted)
    return folder


def requirements(name: str) -> list[str]:
    """What the layer holds, closed under dependencies (a test compares it with the metadata)."""
    return locked.pinned(LAYERS[name])


def _made_by(name: str, program: str) -> list[str]:
    """What else a layer depends on."""
    described = sdk.services() if _has_sdk(name) else ()
    compiled = f"compiled for {sdk.PYTHON}" if program else "not compiled"
    return [*(f"botocore for {service}" for service in described), compiled]


def _has_sdk(name: str) -> bool:
    return "botocore" in LAYERS[name]


def _install(name: str, target: Path, program: str) -> None:
    try:
        locked.install(target, requirements(name), _FOR_LAMBDA)
    except NotInstalled as problem:
        raise LayerNotBuilt(name, str(problem)) from None
    shutil.rmtree(target / "bin", ignore_errors=True)
    if _has_sdk(name):
        sdk.prune(target)
    if program:
        sdk.compile_all(target, program)
    else:
        sys.stderr.write(_UNCOMPILED.format(name=name, python=sdk.PYTHON))


def main() -> None:
    try:
        for name in LAYERS:
            build(name)
    except LayerNotBuilt as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
