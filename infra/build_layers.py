"""
Builds the Lambda layers that `layers/layers.toml` declares.

Layers of wheels are built for the platform of Lambda, in the versions of this environment, so that
the deployed versions are the tested ones; that includes botocore, which the Lambda runtime has in
another version. A layer is rebuilt when its contents have changed.

The SDK is shipped as botocore, with what the functions ask of it, compiled for Lambda: a layer is
read-only, so each instance that starts would compile what is not.
"""

from __future__ import annotations

import ast
import filecmp
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from infra import packing
from infra.packing import NotInstalled
from infra.paths import BUILD, FUNCTIONS, PACKAGE, VENDOR
from infra.paths import LAYERS as DECLARED

PYTHON = "3.13"  # of the functions
PLACE = "/opt/python"  # where Lambda has it, as tracebacks name it
_CODE = (PACKAGE / "aws", FUNCTIONS)


class UnknownClient(Exception):
    def __init__(self, path: Path, line: int) -> None:
        super().__init__(f"{path}:{line}: a client's service has to be a literal, to be shipped")


def services() -> tuple[str, ...]:
    """
    Of which the functions' code makes clients.

    Raises:
        UnknownClient: nobody can tell which one it would be.
    """
    paths = (path for folder in _CODE for path in sorted(folder.rglob("*.py")))
    return tuple(sorted({name for path in paths for name in clients(path)}))


def clients(path: Path) -> Iterator[str]:
    """The services that the module at *path* calls `create_client` for; see `services`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "create_client":
            continue
        service = node.args[0] if node.args else None
        if not (isinstance(service, ast.Constant) and isinstance(service.value, str)):
            raise UnknownClient(path, node.lineno)
        yield service.value


def prune(target: Path) -> None:
    """Leave *target* the descriptions of `services` alone, of some 440."""
    wanted = services()
    for folder in (target / "botocore" / "data").iterdir():
        if folder.is_dir() and folder.name not in wanted:
            shutil.rmtree(folder)


def compiler() -> str:
    """The path of a Python of the functions' version; empty where there is none."""
    candidates = (sys.executable, shutil.which(f"python{PYTHON}"))
    return next((path for each in candidates if each and (path := _path(each))), "")


def _path(program: str) -> str:
    """Of the Python behind *program*, if it runs and is of the version."""
    script = (
        f"import sys; print(sys.executable if '%d.%d' % sys.version_info[:2] == '{PYTHON}' else '')"
    )
    done = subprocess.run([program, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def compile_all(target: Path, program: str) -> None:
    """Compile *target* by *program*; no time of a file is looked at, so the same bytes come out."""
    command = [program, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*command, "-s", str(target), "-p", PLACE, str(target)], check=True)


PLATFORM = "manylinux2014_aarch64"
_FOR_LAMBDA = ("--platform", PLATFORM, "--python-version", PYTHON)
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
    with packing.turn(folder):
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
            packing.replace(copy, path.read_bytes())
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
    program = compiler()
    wanted = "\n".join([*requirements(name), *_made_by(name, program)]) + "\n"
    with packing.turn(vendor):
        if not (stamp.is_file() and stamp.read_text() == wanted and (folder / "python").is_dir()):
            _install(name, folder / "python", program)
            stamp.write_text(wanted)
    return folder


def requirements(name: str) -> list[str]:
    """What the layer holds, closed under dependencies (a test compares it with the metadata)."""
    return packing.pinned(LAYERS[name])


def _made_by(name: str, program: str) -> list[str]:
    """What else a layer depends on."""
    described = services() if _has_sdk(name) else ()
    compiled = f"compiled for {PYTHON}" if program else "not compiled"
    return [*(f"botocore for {service}" for service in described), compiled]


def _has_sdk(name: str) -> bool:
    return "botocore" in LAYERS[name]


def _install(name: str, target: Path, program: str) -> None:
    try:
        packing.install(target, requirements(name), _FOR_LAMBDA)
    except NotInstalled as problem:
        raise LayerNotBuilt(name, str(problem)) from None
    shutil.rmtree(target / "bin", ignore_errors=True)
    if _has_sdk(name):
        prune(target)
    if program:
        compile_all(target, program)
    else:
        sys.stderr.write(_UNCOMPILED.format(name=name, python=PYTHON))


def main() -> None:
    try:
        for name in LAYERS:
            build(name)
    except LayerNotBuilt as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
