"""
Builds the Lambda layers that `layers/layers.toml` declares.

Layers of wheels are built for the platform of Lambda, in the versions of this environment, so that
the deployed versions are the tested ones; that includes botocore, which the Lambda runtime has in
another version. A layer is rebuilt when its contents have changed.
"""

from __future__ import annotations

import filecmp
import shutil
import sys
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from infra import locked, sdk, turns
from infra.locked import NotInstalled
from infra.paths import BUILD, PACKAGE, VENDOR
from infra.paths import LAYERS as DECLARED

PLATFORM = "manylinux2014_aarch64"
_FOR_LAMBDA = ("--platform", PLATFORM, "--python-version", sdk.PYTHON)
_CONTENTS = tomllib.loads((DECLARED / "layers.toml").read_text(encoding="utf-8"))
LAYERS = {name: each["wheels"] for name, each in _CONTENTS.items() if "wheels" in each}
OURS = {name: each["packages"] for name, each in _CONTENTS.items() if "packages" in each}
_NOT_DEPLOYED = ("__pycache__", "*.pyc")

_UNCOMPILED = (
    "layer {name}: there is no python{python} here, so it is not compiled, and each function takes"
    " some 0.4 s longer to start\n"
)


class LayerNotBuilt(Exception):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"layer {name} was not built: {why}")


def build_ours(name: str, folder: Path = BUILD / "layers") -> Path:
    """
    Build the layer *name* of our own packages and return its folder.

    Files that are unchanged stay in place, because another process may be reading them.
    """
    target = folder / name
    with turns.turn(folder):
        copy_packages(OURS[name], target / "python", with_init=name == "core")
    return target


def copy_packages(packages: Sequence[str], target: Path, *, with_init: bool) -> None:
    """Make *target* contain the folders *packages* of `tidings` and nothing else of ours."""
    wanted = {
        path for name in packages for path in (PACKAGE / name).rglob("*") if _is_deployed(path)
    }
    if with_init:
        wanted.add(PACKAGE / "__init__.py")
    copies = {target / "tidings" / path.relative_to(PACKAGE): path for path in wanted}
    for copy, path in copies.items():
        if not (copy.is_file() and filecmp.cmp(copy, path, shallow=False)):
            copy.parent.mkdir(parents=True, exist_ok=True)
            turns.replace(copy, path.read_bytes())
    for path in (target / "tidings").rglob("*"):
        if path.is_file() and path not in copies:
            path.unlink()


def _is_deployed(path: Path) -> bool:
    return path.is_file() and not any(
        fnmatch(part, pattern) for part in path.parts for pattern in _NOT_DEPLOYED
    )


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
