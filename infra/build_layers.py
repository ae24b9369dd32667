"""
Builds the layers of third-party wheels, for the machine Lambda runs them on.

`functions` is under every function, `stream` under the streaming function alone; `tokens` takes the
place of `functions` in a stage that takes tokens, because a function has five layers at most.
boto3 is part of Lambda's runtime and not shipped. Versions are those of this environment: what was
tested is what is deployed. A layer is built again only when its requirements changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from infra import turns
from infra.paths import VENDOR

PYTHON = "3.13"
PLATFORM = "manylinux2014_aarch64"
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
        LayerNotBuilt: pip found no wheel, or no network.
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
    return [f"{package}=={version(package)}" for package in LAYERS[name]]


def _install(name: str, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-compile", "--only-binary=:all:", "--target", str(target)]
    command += ["--platform", PLATFORM, "--python-version", PYTHON, *requirements(name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LayerNotBuilt(name, (done.stderr.strip().splitlines() or ["pip failed"])[-1])
    shutil.rmtree(target / "bin", ignore_errors=True)


def main() -> None:
    try:
        for name in LAYERS:
            build(name)
    except LayerNotBuilt as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
