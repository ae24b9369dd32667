"""Which stages are synthesised: all of them, or one with `-c stage=dev`."""

from __future__ import annotations

import aws_cdk as cdk
import cdk_nag

from infra import settings
from infra.stack import compose

app = cdk.App()
compose(app, settings.chosen(app.node.try_get_context("stage")))
cdk.Aspects.of(app).add(cdk_nag.AwsSolutionsChecks())
app.synth()
