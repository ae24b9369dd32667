"""The CDK's command line, fetched once into build/node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from infra.paths import BUILD

# npm's `latest` is 3.x, which refuses what aws-cdk-lib 2.275 writes.
VERSION = "2.1148.1"


class CdkFailed(Exception):
    """npm or the CDK's command line ended with an error."""


def deploy(
    assembly: Path, stack: str, *, account: str, region: str, aws: dict[str, str]
) -> Outputs:
    """
    Bootstrap the account, deploy *stack* out of *assembly*, and tell its outputs.

    Raises:
        CdkFailed: one of the steps did.
    """
    cdk = [str(_installed()), "--app", str(assembly)]
    outputs = assembly.parent / "outputs.json"
    _run([*cdk, "bootstrap", f"aws://{account}/{region}"], aws)
    _run([*cdk, "deploy", stack, "--require-approval=never", f"--outputs-file={outputs}"], aws)
    found: dict[str, Outputs] = json.loads(outputs.read_text())
    return found[stack]


Outputs = dict[str, str]


def _installed() -> Path:
    folder = BUILD / "node"
    package = folder / "node_modules" / "aws-cdk" / "package.json"
    if not package.is_file() or json.loads(package.read_text())["version"] != VERSION:
        npm = shutil.which("npm")
        if npm is None:
            raise CdkFailed("npm is needed to fetch the CDK's command line and is not on the PATH.")
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        _run([npm, "install", *quiet, "--prefix", str(folder), f"aws-cdk@{VERSION}"], {})
    return folder / "node_modules" / ".bin" / "cdk"


def _run(command: list[str], variables: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        env=os.environ | {"CDK_DISABLE_CLI_TELEMETRY": "true"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CdkFailed(f"{' '.join(command)}\n{done.stdout}")
