"""Run the tests of what Lambda runs on its Python, with warnings as errors: `make test-runtime`.

    python -m tests.runtime [PYTEST OPTION...]

It uses an installed Python of that version, else the one of a minimal Debian root (tests/bare.sh).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from infra import BUILD, ROOT, builds
from infra.builds import PYTHON
from tests import lanes

VENV = ROOT / ".venv-runtime"
DEBIAN = "trixie"  # its python3 has Lambda's version
# The folders in which pyenv and uv install.
_INSTALLED = (
    f".pyenv/versions/{PYTHON}*/bin/python{PYTHON}",
    f".local/share/uv/python/cpython-{PYTHON}*/bin/python{PYTHON}",
)
# An instance of a function keeps its connections until it ends; a test drops the client instead.
_WARNINGS = ("-W", "error", "-W", "ignore::ResourceWarning")
# Packages of the lock that these tests never import: they are large, or for other lanes.
_LEFT_OUT = frozenset(
    (
        *("pyspark", "pysail", "pyarrow", "pandas", "numpy", "duckdb", "pyiceberg", "pyroaring"),
        *("aws-cdk-lib", "aws-cdk-asset-awscli-v1", "aws-cdk-asset-node-proxy-agent-v6"),
        *("aws-cdk-cloud-assembly-schema", "cdk-nag", "constructs", "jsii", "cfn-lint", "sympy"),
        *("atheris", "mypy", "ruff", "uv", "grimp", "import-linter", "networkx", "librt"),
        *("awslambdaric", "confluent-kafka", "grpcio", "grpcio-status", "psycopg-binary"),
        *("zensical", "mkdocs", "mkdocstrings", "watchdog", "virtualenv", "pre-commit"),
        *("pymongo", "opensearch-py", "schemathesis", "zstandard", "colorama", "pywin32"),
    )
)


class NoPython(Exception):
    def __init__(self) -> None:
        super().__init__(
            f"make test-runtime needs Python {PYTHON}, Lambda's runtime, and finds none:"
            f" install python{PYTHON} (pyenv install {PYTHON}, uv python install"
            f" {PYTHON}), or run it as root with debootstrap installed"
        )


def python() -> str:
    """Return the path of a Python of Lambda's version; empty if none is installed."""
    found = (str(each) for pattern in _INSTALLED for each in sorted(Path.home().glob(pattern)))
    return builds.compiler() or next(found, "")


def requirements() -> Iterator[str]:
    """Yield the entries of the lock that these tests need, with their sums."""
    for pin, entry in builds.lock().items():
        if pin.partition("==")[0] not in _LEFT_OUT:
            yield entry


def prepare(program: str) -> None:
    """Make the virtual environment, if it is missing or the lock has changed."""
    wanted, stamp = "\n".join(requirements()) + "\n", VENV / "requirements.txt"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    sys.stdout.write(f"installing what the tests need into {VENV.name}, for {program} ...\n")
    sys.stdout.flush()
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([program, "-m", "venv", str(VENV)], check=True)
    made = VENV / "installing.txt"
    made.write_text(wanted)
    _pip("--require-hashes", "--no-build-isolation", "-r", str(made))
    _pip("--no-build-isolation", "-e", str(ROOT))
    made.replace(stamp)


def _pip(*options: str) -> None:
    command = [str(VENV / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--no-compile", "--no-deps", *options], cwd=ROOT, check=True)


def main() -> None:
    program = python()
    if not program:
        if os.geteuid() or not shutil.which("debootstrap"):
            sys.exit(str(NoPython()))
        root = {**os.environ, "FOLDER": str(BUILD / "bare"), "TARGETS": "test-runtime"}
        sys.exit(subprocess.run([ROOT / "tests/bare.sh", DEBIAN], env=root, check=False).returncode)
    prepare(program)
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "--dist",
        "loadfile",
        "-n",
        os.environ.get("WORKERS") or "2",
    )
    tests = [str(VENV / "bin" / "pytest"), *options, *_WARNINGS, *lanes.RUNTIME, *sys.argv[1:]]
    sys.exit(subprocess.run(tests, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
