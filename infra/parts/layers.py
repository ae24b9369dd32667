"""The layers: our two packages as they are, and wheels built for Lambda."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import build_layers

RUNTIME = lambda_.Runtime.PYTHON_3_13
ARCHITECTURE = lambda_.Architecture.ARM_64


class Layers(Construct):
    """
    `shared` is under every function; `stream` under the streaming one as well. *tokens*: they are
    taken, which needs a library more.
    """

    def __init__(self, scope: Construct, name: str, *, tokens: bool = False) -> None:
        super().__init__(scope, name)
        self.shared = [
            self._layer("Vendor", build_layers.build("tokens" if tokens else "functions")),
            # Lambda merges the two below /opt/python.
            self._layer("Core", build_layers.build_ours("core")),
            self._layer("Aws", build_layers.build_ours("aws")),
        ]
        self.stream = self._layer("VendorStream", build_layers.build("stream"))

    def _layer(self, name: str, folder: Path) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            name,
            code=lambda_.Code.from_asset(str(folder)),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[ARCHITECTURE],
        )
