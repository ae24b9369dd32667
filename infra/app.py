"""
The CDK app: synthesises all stages, or one with `-c stage=dev`.

A sandbox, which expires, also takes `-c expires=MOMENT` and `-c release=2`.
"""

from __future__ import annotations

import aws_cdk as cdk
import cdk_nag

from infra import settings
from infra.stack import compose

app = cdk.App()
asked = app.node.try_get_context
release = int(asked("release") or 1)
compose(app, settings.chosen(asked("stage"), asked("expires") or "", release))
cdk.Aspects.of(app).add(cdk_nag.AwsSolutionsChecks())
app.synth()
