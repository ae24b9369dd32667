"""Synthesise every stage into cdk.out, for `make synth`.

Neither an account nor Docker nor the CDK's command line is needed. The synthesis fails on a finding
of cdk-nag that infra/suppressions.py does not accept, and on any finding of cfn-lint.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cfnlint.api  # type: ignore[import-untyped]
import cfnlint.config  # type: ignore[import-untyped]

from infra import ASSEMBLY, ROOT, cdk_cli, settings
from infra.builds import NotBuilt, warn_if_uncompiled
from infra.settings import InvalidSetting
from tidings.aws.config.stages import REGIONS

# cfn-lint reports by this rule that a function's reference to its role already implies the
# dependency that the CDK adds.
LINT_IGNORED = "W3005"


class SynthFailed(Exception):
    """The app could not be synthesised; the message is the output of the app."""


def synth(outdir: Path, *, stage: str | None = None, **context: str) -> list[Path]:
    """Write the templates of *stage*, or of all stages, to *outdir*; return their paths.

    *context* are additional context values of the app.

    Raises:
        NodeMissing: Node.js is missing.
        SynthFailed: the app failed.
    """
    cdk_cli.require_node()
    shutil.rmtree(outdir, ignore_errors=True)
    parameters = json.dumps(context | ({"stage": stage} if stage else {}))
    done = subprocess.run(
        [sys.executable, "-m", "infra.stack"],
        cwd=ROOT,
        env=os.environ | {"CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": parameters},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SynthFailed(done.stderr)
    return sorted(outdir.glob("*.template.json"))


def nag_findings(outdir: Path) -> list[str]:
    """Return the unaccepted findings of cdk-nag: `rule resource: requirement`."""
    findings = []
    for report in sorted(outdir.glob("AwsSolutions-*-NagReport.csv")):
        with report.open(newline="") as lines:
            findings += [
                f"{row['Rule ID']} {row['Resource ID']}: {row['Rule Info']}"
                for row in csv.DictReader(lines)
                if row["Compliance"] in ("Non-Compliant", "UNKNOWN")
            ]
    return findings


def lint_findings(templates: list[Path]) -> list[str]:
    """Return the findings of cfn-lint, for all possible Regions: `file:line rule message`."""
    config = cfnlint.config.ManualArgs(ignore_checks=[LINT_IGNORED], regions=sorted(REGIONS))
    return [
        f"{template.name}:{match.linenumber} {match.rule.id} {match.message}"
        for template in templates
        for match in cfnlint.api.lint(template.read_text(), config=config)
    ]


def main() -> None:
    stage = sys.argv[1] if sys.argv[1:] else None
    try:
        settings.choose_stages(stage)
        templates = synth(ASSEMBLY, stage=stage)
    except (cdk_cli.NodeMissing, NotBuilt, SynthFailed, InvalidSetting) as problem:
        sys.exit(str(problem))
    findings = nag_findings(ASSEMBLY) + lint_findings(templates)
    if findings:
        sys.exit("\n".join(findings))
    warn_if_uncompiled()
    sys.stdout.write(f"{len(templates)} templates in {ASSEMBLY.name}, nothing to report\n")


if __name__ == "__main__":
    main()
