"""Bytes for parsers: each refuses what it does not like, and never fails."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra import ROOT
from tests.fuzz.parsers import PARSERS, SEEDS, read

RUNS = 2000  # each parser; `make fuzz` takes minutes
SECONDS = 10


@pytest.mark.parametrize("name", [name for name in PARSERS if name in SEEDS])
def test_a_good_beginning(name: str) -> None:
    """Seeds are taken, some of them at least: the fuzzer gets past the first check."""
    assert any([read(name, seed) for seed in SEEDS[name]])


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=200)
@given(data=st.binary(max_size=200) | st.text(max_size=100).map(lambda t: t.encode()))
def test_any_bytes(name: str, data: bytes) -> None:
    """Without guidance, where the fuzzer is not installed."""
    read(name, data)


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris")
def test_guided_bytes() -> None:
    """Bytes that reach further, guided by coverage; a short run of `make fuzz`."""
    command = [sys.executable, "-m", "tests.fuzz", f"--seconds={SECONDS}", f"--runs={RUNS}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert "nothing was found" in done.stdout, done.stdout + done.stderr[-4000:]
    assert done.returncode == 0
