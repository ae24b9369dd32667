"""Build the Lambda layers declared in `layers/layers.toml`.

The wheels of a layer are those for Lambda's platform, in the versions that are installed in this
environment, so that the tested versions are deployed. One of the wheels is botocore, because
Lambda's runtime contains another version of botocore. A layer is rebuilt if its contents would
change.

botocore's descriptions of services that the functions do not use are not deployed. Modules are
compiled when the layer is built. Otherwise every new instance would compile the modules again,
because a layer is read-only on Lambda.
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

from infra import BUILD, FUNCTIONS, PACKAGE, VENDOR, packing
from infra import LAYERS as DECLARED
from infra.packing import NotInstalled

PYTHON = "3.13"  # the Python version of the functions
PLACE = "/opt/python"  # the path of the modules on Lambda, which tracebacks show
_CODE = (PACKAGE / "aws", FUNCTIONS)
PLATFORM = "manylinux2014_aarch64"
_FOR_LAMBDA = ("--platform", PLATFORM, "--python-version", PYTHON)
_CONTENTS = tomllib.loads((DECLARED / "layers.toml").read_text(encoding="utf-8"))
LAYERS = {name: each["wheels"] for name, each in _CONTENTS.items() if "wheels" in each}
OURS = {name: each["packages"] for name, each in _CONTENTS.items() if "packages" in each}
_NOT_DEPLOYED = ("__pycache__", "*.pyc")
_IGNORED = shutil.ignore_patterns(*_NOT_DEPLOYED)
BUNDLE = BUILD / "bundle" / "code"  # the folder with all code, for stages with `hotswap`


class UnknownClient(Exception):
    def __init__(self, path: Path, line: int) -> None:
        super().__init__(
            f"{path}:{line}: the service of create_client must be a literal, because only the"
            " services found in the code are deployed"
        )


def services() -> tuple[str, ...]:
    """Return the services of all clients that the functions' code creates.

    Raises:
        UnknownClient: the name of a service is not a literal.
    """
    paths = (path for folder in _CODE for path in sorted(folder.rglob("*.py")))
    return tuple(sorted({name for path in paths for name in clients(path)}))


def clients(path: Path) -> Iterator[str]:
    """Yield the services for which the module at *path* calls `create_client`; see `services`."""
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
    """Delete from *target* the descriptions of all services (some 440) except `services`."""
    wanted = services()
    for folder in (target / "botocore" / "data").iterdir():
        if folder.is_dir() and folder.name not in wanted:
            shutil.rmtree(folder)


def compiler() -> str:
    """Return the path of a Python of the functions' version; "" if it is not installed."""
    candidates = (sys.executable, shutil.which(f"python{PYTHON}"))
    return next((path for each in candidates if each and (path := _path(each))), "")


def _path(program: str) -> str:
    """Return the executable of *program* if it runs and has the right version, else ""."""
    script = (
        f"import sys; print(sys.executable if '%d.%d' % sys.version_info[:2] == '{PYTHON}' else '')"
    )
    done = subprocess.run([program, "-c", script], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def compile_all(target: Path, program: str) -> None:
    """Compile *target* with *program*. The result does not depend on the times of the files."""
    command = [program, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*command, "-s", str(target), "-p", PLACE, str(target)], check=True)


class LayerNotBuilt(Exception):
    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"layer {name} was not built: {why}")


def build_ours(name: str, folder: Path = BUILD / "layers") -> Path:
    """Build the layer *name* of our own packages and return its folder.

    Unchanged files stay in place, because another process may be reading them.
    """
    target = folder / name
    with packing.turn(folder):
        copy_packages(OURS[name], target / "python", with_init=name == "core")
    return target


def bundle(target: Path = BUNDLE) -> Path:
    """Build one folder with the code of all functions and our packages, and return the folder."""
    with packing.turn(target.parent):
        names = [package for packages in OURS.values() for package in packages]
        copy_packages(names, target, with_init=True)
        shutil.rmtree(target / FUNCTIONS.name, ignore_errors=True)
        shutil.copytree(FUNCTIONS, target / FUNCTIONS.name, ignore=_IGNORED)
    return target


def copy_packages(packages: Sequence[str], target: Path, *, with_init: bool) -> None:
    """Make *target* contain exactly the folders *packages* of `tidings`."""
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
        fnmatch(part, out) for part in path.relative_to(PACKAGE).parts for out in _NOT_DEPLOYED
    )


def build(name: str, *, vendor: Path = VENDOR) -> Path:
    """Return the folder of layer *name*; build it if it is missing or out of date.

    Raises:
        LayerNotBuilt: the lock lacks a wheel, a hash differs, or the network is unavailable.
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
    """Return the pinned wheels of the layer (a test checks that no dependency is missing)."""
    return packing.pin_versions(LAYERS[name])


def _made_by(name: str, program: str) -> list[str]:
    """Return the inputs of a layer other than its wheels: service descriptions and the compiler."""
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


def warn_if_uncompiled() -> None:
    """Warn on stderr if layers cannot be compiled here; they are deployed all the same."""
    if not compiler():
        sys.stderr.write(
            f"warning: the layers are not compiled, because python{PYTHON} was not found; each"
            " function takes about 0.4 s longer to start\n"
        )


def main() -> None:
    warn_if_uncompiled()
    try:
        for name in LAYERS:
            build(name)
    except LayerNotBuilt as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
