"""
Which stages are synthesised: all of them, or one with `-c stage=dev`; of a sandbox, which expires,
with `-c expires=MOMENT` and `-c release=2` besides.
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
