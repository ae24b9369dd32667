"""The lock: all installed packages have a sum, with every installer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra import ROOT, build_job, build_layers, packing
from infra.build_layers import LayerNotBuilt

RUN_LOCK = ROOT / "requirements-run.lock"
PARTS = [RUN_LOCK, ROOT / "requirements-deploy.lock"]


@pytest.mark.parametrize("path", [packing.LOCK, *PARTS], ids=lambda path: path.name)
def test_every_package_has_its_sums(path: Path) -> None:
    """And a fixed version; the index is not named, because each machine configures it."""
    entries = packing.lock(path)
    assert len(entries) == len(re.findall("^[^ ]", path.read_text(), re.MULTILINE))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries.values())
    assert "://" not in path.read_text()


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.name)
def test_a_part_of_the_lock_is_as_in_the_whole(path: Path) -> None:
    """`make run`, `make synth` and `make setup` install one thing."""
    whole, part = packing.lock(), packing.lock(path)
    assert {*part} <= {*whole}
    assert 0 < len(part) < len(whole) / 2


def test_all_that_is_deployed_is_in_the_lock() -> None:
    """In the versions that the tests run: layers and jobs."""
    deployed = {*build_job.requirements()}
    for name in build_layers.LAYERS:
        deployed |= {*build_layers.requirements(name)}
    assert {packing.encode_name(*each.split("==")) for each in deployed} <= {*packing.lock()}


def test_what_is_not_in_the_lock_is_not_installed(tmp_path: Path) -> None:
    """By name and version, before pip is asked."""
    with pytest.raises(LayerNotBuilt, match=r"click==0\.0\.1 is not in requirements\.lock"):
        build_job.install(tmp_path, ["click==0.0.1"])


def test_another_file_than_the_locked_one_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel of the same name and version; pip compares the sums."""
    wheel = tmp_path / "wheels" / "tampered-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"not what it was")
    entry = f"tampered @ {wheel.as_uri()} --hash=sha256:{'0' * 64}"
    monkeypatch.setattr(packing, "lock", lambda: {"tampered==1": entry})
    with pytest.raises(LayerNotBuilt, match=r"hash|HASH|Got"):
        build_job.install(tmp_path / "target", ["tampered==1"])
