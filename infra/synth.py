"""
`make synth`: synthesise every stage into cdk.out, without an account, Docker or the CDK's command
line.

It fails on a finding of cdk-nag that infra/suppressions.py does not accept, and on any finding of
cfn-lint.
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
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]

from infra import cdk_cli, settings
from infra.build_layers import LayerNotBuilt
from infra.paths import ASSEMBLY, ROOT
from infra.settings import InvalidSetting

# The CDK makes a function depend on its role and on the role's policy; cfn-lint reports that the
# first dependency is implied.
LINT_IGNORED = "W3005"


class SynthFailed(Exception):
    """The app could not be synthesised, or a checker refused the templates."""


def synth(outdir: Path, *, stage: str | None = None, **context: str) -> list[Path]:
    """
    Write the templates of *stage*, or of all stages, to *outdir*; return their paths.

    *context* are additional context values of the app.

    Raises:
        NodeMissing: Node.js is missing.
        SynthFailed: the app raised.
    """
    cdk_cli.require_node()
    shutil.rmtree(outdir, ignore_errors=True)
    asked = json.dumps(context | ({"stage": stage} if stage else {}))
    done = subprocess.run(
        [sys.executable, "-m", "infra.app"],
        cwd=ROOT,
        env=os.environ | {"CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": asked},
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
    """Return the findings of cfn-lint: `file:line rule message`."""
    config = cfnlint.config.ManualArgs(ignore_checks=[LINT_IGNORED])
    return [
        f"{template.name}:{match.linenumber} {match.rule.id} {match.message}"
        for template in templates
        for match in cfnlint.api.lint(template.read_text(), config=config)
    ]


def kinds(templates: list[Path]) -> set[str]:
    """Return the types of all resources in *templates*."""
    bodies = (json.loads(template.read_text()) for template in templates)
    return {each["Type"] for body in bodies for each in body["Resources"].values()}


def missing(wanted: set[str], region: str) -> set[str]:
    """Return the types of *wanted* that AWS does not have in *region*, by cfn-lint's data."""
    return wanted - {*PROVIDER_SCHEMA_MANAGER.get_resource_types(region), "AWS::CDK::Metadata"}


def main() -> None:
    stage = sys.argv[1] if sys.argv[1:] else None
    try:
        settings.chosen(stage)
        templates = synth(ASSEMBLY, stage=stage)
    except (cdk_cli.NodeMissing, LayerNotBuilt, SynthFailed, InvalidSetting) as problem:
        sys.exit(str(problem))
    findings = nag_findings(ASSEMBLY) + lint_findings(templates)
    if findings:
        sys.exit("\n".join(findings))
    sys.stdout.write(f"{len(templates)} templates in {ASSEMBLY.name}, nothing to report\n")


if __name__ == "__main__":
    main()
