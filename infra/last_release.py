"""
The release before this one as it was deployed: what updates are tried from.

`tests/deploy/release.tar.xz` holds its cloud assembly, the templates of all stages and our own
code, so that no history and no tag is needed and what is updated is what was deployed, byte for
byte. Wheels of others and the archive for Spark are ten times as large: those of today stand in.

    python -m tests.deploy   # once a version is released: keeps what `make synth` wrote
"""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tarfile
from pathlib import Path
from typing import Any

from tidings.aws.config import deployment
from tidings.aws.config.stages import ACCOUNT_STACK, data_stack_name, stack_name
from tidings.core.version import VERSION as CODE_VERSION

from infra import settings, whole
from infra.build_job import without_owner
from infra.names import title
from infra.paths import ROOT

KEPT = ROOT / "tests" / "deploy" / "release.tar.xz"
FOR_ALL = settings.STAGES[0]  # the stage whose assets are kept; the others are templates alone
LARGE = 1_000_000  # bytes; our own code is 0.8 MB a layer, the wheels of others begin at 2 MB
VERSION = "version.txt"
_MANIFEST, _SCHEMA, _PARTS = "manifest.json", "cdk.out", ("template", "assets", "metadata")


class NoRelease(Exception):
    """The assembly to keep is not there."""


def template(stage: settings.Stage) -> dict[str, Any]:
    """What the release deployed as *stage*, in however many stacks."""
    deployed = stacks()
    with _opened() as kept:
        bodies: list[dict[str, Any]] = [
            json.loads(_text(kept, f"{name}.template.json"))
            for name in (data_stack_name(stage.name), stack_name(stage.name))
            if name in deployed
        ]
    return whole.joined(*bodies) if len(bodies) > 1 else bodies[0]


def stacks() -> frozenset[str]:
    """The names of those that the release deployed: the first one had one a stage."""
    end = ".template.json"
    with _opened() as kept:
        return frozenset(n.removesuffix(end) for n in kept.getnames() if n.endswith(end))


def version() -> str:
    with _opened() as kept:
        return _text(kept, VERSION).strip()


def unpack(folder: Path, today: Path) -> Path:
    """The assembly in *folder*; what is not kept comes from that of *today*."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with _opened() as kept:
        kept.extractall(folder, filter="data")
    stand_ins = {name: today / path for name, path in assets(today).items()}
    for name, path in assets(folder).items():
        if not (folder / path).exists():
            _copy(stand_ins[name], folder / path)
    return folder


def checkout(folder: Path) -> Path:
    """Its functions and our own layers in an empty *folder*, as a checkout of it has them."""
    assembly = folder / "assembly"
    with _opened() as kept:
        kept.extractall(assembly, filter="data")
    found = assets(assembly)
    wanted = {f"Layers/{title(name)}/Code": f"layers/{name}" for name in ("core", "aws")}
    wanted |= {
        f"{title(each.name)}/Function/Code": f"functions/{each.folder}"
        for each in deployment.FUNCTIONS
    }
    for name in wanted.keys() & found.keys():
        _copy(assembly / found[name], folder / wanted[name])
    return folder


def keep(assembly: Path, into: Path = KEPT) -> None:
    """
    Write the reference anew.

    Raises:
        NoRelease: nothing was synthesised.
    """
    if not (assembly / _template(FOR_ALL)).is_file():
        raise NoRelease(f"there is no {_template(FOR_ALL)} in {assembly}: make synth writes it")
    into.parent.mkdir(parents=True, exist_ok=True)
    with (
        lzma.open(into, "wb", preset=9 | lzma.PRESET_EXTREME) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        _add(tar, VERSION, f"{CODE_VERSION}\n".encode())
        for path in _wanted(assembly):
            tar.add(path, path.relative_to(assembly), recursive=False, filter=without_owner)


def assets(assembly: Path, stage: settings.Stage = FOR_ALL) -> dict[str, str]:
    """Where the files of *stage* are that are deployed, by what the CDK calls them."""
    body = json.loads((assembly / f"{stack_name(stage.name)}.assets.json").read_text())
    return {each["displayName"]: each["source"]["path"] for each in body["files"].values()}


def _wanted(assembly: Path) -> list[Path]:
    wanted = [ACCOUNT_STACK]
    for stage in settings.STAGES:
        wanted += [data_stack_name(stage.name), stack_name(stage.name)]
    names = [f"{stack}.{part}.json" for stack in wanted for part in _PARTS]
    files = [assembly / name for name in (_MANIFEST, _SCHEMA, *names)]
    for path in {assembly / each for each in assets(assembly).values()}:
        if path.is_dir() and _size(path) < LARGE:
            files += [path, *path.rglob("*")]
    return sorted(set(files))


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _template(stage: settings.Stage) -> str:
    return f"{stack_name(stage.name)}.template.json"


def _opened() -> tarfile.TarFile:
    return tarfile.open(KEPT)


def _text(kept: tarfile.TarFile, name: str) -> str:
    member = kept.extractfile(name)
    assert member is not None, name
    return member.read().decode()


def _add(tar: tarfile.TarFile, name: str, text: bytes) -> None:
    about = tarfile.TarInfo(name)
    about.size = len(text)
    tar.addfile(about, io.BytesIO(text))


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)
