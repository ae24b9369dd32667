"""Synthesise every stage into cdk.out, for `make synth`.

Neither an account nor Docker nor the CDK's command line is needed. The synthesis fails on a finding
of cdk-nag that infra/suppressions.py does not accept, and on any finding of cfn-lint.
`join_templates` returns a stage's stacks as one template, for code that examines a whole stage.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cfnlint.api  # type: ignore[import-untyped]
import cfnlint.config  # type: ignore[import-untyped]
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]

from infra import ASSEMBLY, ROOT, cdk_cli, settings
from infra.build_layers import LayerNotBuilt, warn_if_uncompiled
from infra.settings import InvalidSetting
from tidings.aws.config.stages import REGIONS, data_stack_name, stack_name

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


def kinds(templates: list[Path]) -> set[str]:
    """Return the types of all resources in *templates*."""
    bodies = (json.loads(template.read_text()) for template in templates)
    return {each["Type"] for body in bodies for each in body["Resources"].values()}


def missing(wanted: set[str], region: str) -> set[str]:
    """Return the types of *wanted* that AWS lacks in *region* according to cfn-lint's data."""
    return wanted - {*PROVIDER_SCHEMA_MANAGER.get_resource_types(region), "AWS::CDK::Metadata"}


def main() -> None:
    stage = sys.argv[1] if sys.argv[1:] else None
    try:
        settings.choose_stages(stage)
        templates = synth(ASSEMBLY, stage=stage)
    except (cdk_cli.NodeMissing, LayerNotBuilt, SynthFailed, InvalidSetting) as problem:
        sys.exit(str(problem))
    findings = nag_findings(ASSEMBLY) + lint_findings(templates)
    if findings:
        sys.exit("\n".join(findings))
    warn_if_uncompiled()
    sys.stdout.write(f"{len(templates)} templates in {ASSEMBLY.name}, nothing to report\n")


if __name__ == "__main__":
    main()


Body = dict[str, Any]

_PARAMETER = "AWS::SSM::Parameter"
_PLACE = [{"Ref": "AWS::Region"}, ":", {"Ref": "AWS::AccountId"}]
# For each type of resource, the parts that precede the name in an ARN that is built from the name.
_NAMED = {
    "AWS::DynamoDB::Table": [{"Ref": "AWS::Partition"}, ":dynamodb:", *_PLACE, ":table/"],
    "AWS::S3::Bucket": [{"Ref": "AWS::Partition"}, ":s3:::"],
}


def of_assembly(assembly: Path, stage: str) -> Body:
    """Return the template of *stage*, as it was synthesised into *assembly*."""
    data, work = (
        json.loads((assembly / f"{name(stage)}.template.json").read_text())
        for name in (data_stack_name, stack_name)
    )
    return join_templates(data, work)


def join_templates(data: Mapping[str, Any], *others: Mapping[str, Any]) -> Body:
    """Return the templates of a stage's stacks as one.

    A reference in *others* to a parameter is replaced by the value that *data* writes to the
    parameter.

    Raises:
        KeyError: a parameter has no value in *data*.
    """
    resources = dict(data["Resources"])
    outputs = dict(data.get("Outputs", {}))
    parameters: dict[str, Any] = dict(data.get("Parameters", {}))
    for other in others:
        resources |= other["Resources"]
        outputs |= other.get("Outputs", {})
        parameters |= other.get("Parameters", {})
    written = {
        each["Properties"]["Name"]: each["Properties"]["Value"]
        for each in data["Resources"].values()
        if each["Type"] == _PARAMETER
    }
    read = {
        name: written[each["Default"]]
        for name, each in parameters.items()
        if each["Default"].startswith("/tidings/")
    }
    body = {
        "Parameters": {name: each for name, each in parameters.items() if name not in read},
        "Resources": {name: each for name, each in resources.items() if each["Type"] != _PARAMETER},
        "Outputs": outputs,
    }
    joined_up: Body = _resolve(body, read, resources)
    return joined_up


def _resolve(value: Any, read: Mapping[str, Any], resources: Mapping[str, Any]) -> Any:
    match value:
        case {"Ref": str(name)} if name in read:
            return read[name]
        case {"Fn::Join": ["", list(parts)]}:
            inner = [_resolve(part, read, resources) for part in parts]
            return _join(_with_arns(inner, resources))
        case dict():
            return {key: _resolve(each, read, resources) for key, each in value.items()}
        case list():
            return [_resolve(each, read, resources) for each in value]
    return value


def _join(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else {"Fn::Join": ["", parts]}


def _with_arns(parts: list[Any], resources: Mapping[str, Any]) -> list[Any]:
    """Return *parts* of a text, with references in place of ARNs that they build from names."""
    for at, part in enumerate(parts):
        name = part.get("Ref", "") if isinstance(part, dict) else ""
        before = _NAMED.get(resources.get(name, {}).get("Type", ""), [])
        start = at - len(before)
        if before and start > 0 and _ends_so(parts[start - 1 : at], before):
            arn = {"Fn::GetAtt": [name, "Arn"]}
            head = [parts[start - 1].removesuffix("arn:")]
            after = _with_arns(parts[at + 1 :], resources)
            return [*parts[: start - 1], *[each for each in head if each], arn, *after]
    return parts


def _ends_so(parts: list[Any], before: list[Any]) -> bool:
    """Return True if *parts* end with *before*, the beginning of an ARN up to the name."""
    first, *others = parts
    return isinstance(first, str) and first.endswith("arn:") and _one(others) == _one(before)


def _one(parts: list[Any]) -> str:
    return "".join(part if isinstance(part, str) else json.dumps(part) for part in parts)
