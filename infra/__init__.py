"""The deployment of Tidings to AWS; this module defines paths in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FUNCTIONS = ROOT / "functions"
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "tidings"
LAYERS = ROOT / "layers"
VENDOR = LAYERS / "vendor"
ASSEMBLY = ROOT / "cdk.out"
BUILD = ROOT / "build"

NOT_DEPLOYED = ["**/__pycache__", "**/*.pyc", "__init__.py"]
