"""Whether Node.js is here: the CDK's engine (jsii) and its command line run on it."""

from __future__ import annotations

import shutil
import subprocess

NODE_MAJOR_MIN = 20  # the oldest release aws-cdk-lib 2.275 still runs on; 22 and 24 are supported


class NodeMissing(Exception):
    def __init__(self) -> None:
        super().__init__(
            f"Node.js {NODE_MAJOR_MIN} or newer is needed to synthesise the CDK app "
            "and is not on the PATH."
        )


def require() -> None:
    """
    Raises:
        NodeMissing: no `node` on the PATH, or one that is too old.
    """
    if _major() < NODE_MAJOR_MIN:
        raise NodeMissing


def _major() -> int:
    node = shutil.which("node")
    if node is None:
        return 0
    printed = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    digits = printed.stdout.strip().removeprefix("v").partition(".")[0]
    return int(digits) if digits.isdigit() else 0
