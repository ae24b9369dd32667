"""
A stage that the last release deployed as one stack becomes two, in place (ADR 53).

    python -m infra.split dev         # says what it would do
    python -m infra.split dev --yes   # does it; then: cdk deploy tidings-dev

Tables, buckets and key leave the stack of the stage and are imported into its data stack. Nothing
else changes: functions run as before, with the names they had. Three steps, each a change set:

1. *note*: the stage's stack retains what moves, and says in outputs what refers to it.
2. *let go*: what moves is removed from that stack, and stays; names stand in place of references.
   The template keeps a record of what was let go.
3. *import*: the data stack takes it up, as it was deployed.

What the account says decides which step is next, so whoever was interrupted starts it again.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError, WaiterError
from tidings.aws.config.stages import data_stack_name, stack_name

from infra import lasting
from infra.paths import ASSEMBLY

# What moves, and the property that says which one it is: CloudFormation calls it an identifier.
IDENTIFIERS = {
    "AWS::DynamoDB::Table": "TableName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::KMS::Key": "KeyId",
}
_PARAMETER = "AWS::SSM::Parameter"
_RECORD = "tidings:split"  # in the metadata of the template that let go
_CHANGE_SET = "tidings-split"
_TOOLKIT, _BUCKET = "CDKToolkit", "BucketName"  # the CDK's bootstrap stack, and its bucket
_PRODUCERS = "Producer"  # how the logical ids of their buckets begin; they stay with them
_CAPABILITIES = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"]
_NO_STACK = "ValidationError"  # CloudFormation has no code of its own for it
_NEW = "REVIEW_IN_PROGRESS"  # a stack that has a change set and nothing else
_POLL = {"Delay": 2, "MaxAttempts": 900}  # half an hour, as a step may take on a slow day

Template = dict[str, Any]
Clients = Callable[[str], Any]
Reference = tuple[str, str]  # a logical id and an attribute; "" is what `Ref` gives


class CannotSplit(Exception):
    """The stage is left as it is; the message says why, and what to do."""


def movable(then: Template, today: Template) -> list[str]:
    """
    Logical ids of what moves from the stack of a stage, deployed as *then*, to its data stack,
    which *today* is to be.

    Raises:
        CannotSplit: something would be made anew instead.
    """
    deployed = {n: e for n, e in then["Resources"].items() if e["Type"] in IDENTIFIERS}
    lost = [
        f"{name} ({each['Type']}) is not in today's template"
        for name, each in deployed.items()
        if today["Resources"].get(name, {}).get("Type") != each["Type"]
        and not name.startswith(_PRODUCERS)
    ]
    moved = sorted(deployed.keys() & today["Resources"].keys())
    anew = [
        f"{name} would be made anew: {'.'.join(path)} differs"
        for name in moved
        for path in sorted(lasting.create_only(deployed[name]["Type"]))
        if _at(deployed[name], path) != _at(today["Resources"][name], path)
    ]
    if lost or anew:
        raise CannotSplit(
            f"{'; '.join(lost + anew)}: split with the settings that the stage was deployed with"
        )
    return moved


def _at(resource: Template, path: tuple[str, ...]) -> Any:
    found: Any = resource.get("Properties", {})
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found


def noting(then: Template, today: Template, moved: list[str]) -> Template:
    """
    The first template: *moved* is retained, an output tells each reference to it, and parameters
    tell owners of producers what they import now.
    """
    made = copy.deepcopy(then)
    for name in moved:
        made["Resources"][name] |= {"DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}
    for name, each in today["Resources"].items():
        if each["Type"] == _PARAMETER and {n for n, _ in references(each, moved)}:
            made["Resources"][name] = each
    asked = references(then, moved) | {(name, "") for name in moved}
    made.setdefault("Outputs", {})
    for name, attribute in sorted(asked):
        value = {"Fn::GetAtt": [name, attribute]} if attribute else {"Ref": name}
        made["Outputs"][_output(name, attribute)] = {"Value": value}
    return made


def letting_go(
    noted: Template, today: Template, moved: list[str], outputs: Mapping[str, str]
) -> Template:
    """
    The second template: without *moved* and what is made anew beside it, with the values that
    *outputs* have in place of references, and with a record for the third.

    Raises:
        CannotSplit: a reference is of a form that the CDK does not write.
    """
    values = {(n, a): outputs[_output(n, a)] for n, a in references(noted, moved)}
    record = {
        name: {
            "Identifier": {
                IDENTIFIERS[noted["Resources"][name]["Type"]]: outputs[_output(name, "")]
            },
            "Definition": noted["Resources"][name],
        }
        for name in moved
    }
    gone = today["Resources"].keys() - {"CDKMetadata"}
    made = _replaced(
        {
            **noted,
            "Resources": {n: e for n, e in noted["Resources"].items() if n not in gone},
            "Outputs": {
                name: each
                for name, each in noted["Outputs"].items()
                if not name.startswith(_output("", "")) and name not in _exports(noted, moved)
            },
        },
        values,
    )
    text = json.dumps(made)
    left = [name for name in sorted(gone) if f'"{name}"' in text or f"${{{name}" in text]
    if left:
        raise CannotSplit(f"it is not known how the template refers to {', '.join(left)}")
    return {**made, "Metadata": {**noted.get("Metadata", {}), _RECORD: record}}


def importing(let_go: Template) -> Template:
    """The third template, of the data stack: what was let go, as it was deployed, and no more."""
    record = let_go["Metadata"][_RECORD]
    return {"Resources": {name: each["Definition"] for name, each in record.items()}}


def references(value: Any, moved: list[str]) -> set[Reference]:
    """Those to *moved* in *value*."""
    match value:
        case {"Ref": str(name)} if name in moved:
            return {(name, "")}
        case {"Fn::GetAtt": [str(name), str(attribute)]} if name in moved:
            return {(name, attribute)}
        case dict():
            return {found for each in value.values() for found in references(each, moved)}
        case list():
            return {found for each in value for found in references(each, moved)}
    return set()


def _replaced(value: Any, values: Mapping[Reference, str]) -> Any:
    match value:
        case {"Ref": str(name)} if (name, "") in values:
            return values[name, ""]
        case {"Fn::GetAtt": [str(name), str(attribute)]} if (name, attribute) in values:
            return values[name, attribute]
        case dict():
            return {key: _replaced(each, values) for key, each in value.items()}
        case list():
            return [_replaced(each, values) for each in value]
    return value


def _output(name: str, attribute: str) -> str:
    return f"Moved{name}{'Dot' if attribute else ''}{attribute}"


def _exports(template: Template, moved: list[str]) -> dict[str, str]:
    """Names of exports of what moves, by their outputs: the data stack has one of them."""
    return {
        name: each["Export"]["Name"]
        for name, each in template.get("Outputs", {}).items()
        if "Export" in each and references(each["Value"], moved)
    }


@dataclass(frozen=True, slots=True)
class Step:
    """*does* one thing, as *says* tells; what it left is looked at anew for the next."""

    says: str
    does: Callable[[], None]


class Split:
    """The way of the stage called *stage* to what the assembly has for it; *clients* of boto3."""

    def __init__(self, stage: str, assembly: Path, clients: Clients) -> None:
        self._work, self._data = stack_name(stage), data_stack_name(stage)
        self._today: Template = json.loads((assembly / f"{self._data}.template.json").read_text())
        self._cloudformation = clients("cloudformation")
        self._s3 = clients("s3")

    def next(self) -> Step | None:
        """
        What has to be done now; None where nothing is left.

        Raises:
            CannotSplit: it is not known what, or it would lose something.
        """
        work = self._described(self._work)
        if work is None:
            raise CannotSplit(f"there is no stack {self._work}: nothing has to be split")
        self._at_rest(work)
        then = self._template(self._work)
        data = self._described(self._data)
        moved = movable(then, self._today)
        if moved:
            return self._before(work, then, moved, data)
        record = then.get("Metadata", {}).get(_RECORD, {})
        if not record or record.keys() <= self._held(data):
            return None
        self._check_new(data)
        what = ", ".join(sorted(record))
        return Step(f"import into {self._data}: {what}", partial(self._import, work, then))

    def _before(
        self, work: Template, then: Template, moved: list[str], data: Template | None
    ) -> Step:
        self._check_new(data)
        outputs = {each["OutputKey"]: each["OutputValue"] for each in work.get("Outputs", ())}
        what = ", ".join(moved)
        if not all(_output(name, "") in outputs for name in moved):
            noted = noting(then, self._today, moved)
            return Step(
                f"retain in {self._work}, and note what refers to it: {what}",
                partial(self._update, noted, frozenset()),
            )
        self._check_owners(_exports(then, moved).values())
        let_go = letting_go(then, self._today, moved, outputs)
        return Step(
            f"let go of in {self._work}, where it stays: {what}",
            partial(self._update, let_go, frozenset(moved)),
        )

    def _check_new(self, data: Template | None) -> None:
        if data and data["StackStatus"] != _NEW:
            raise CannotSplit(
                f"the stack {self._data} is there ({data['StackStatus']}) and has not what is to"
                f" move into it: delete it first, if nothing is in it"
            )

    def _held(self, data: Template | None) -> set[str]:
        """Logical ids of what the data stack has."""
        if data is None:
            return set()
        pages = self._cloudformation.get_paginator("list_stack_resources")
        found = pages.paginate(StackName=self._data)
        return {
            each["LogicalResourceId"] for page in found for each in page["StackResourceSummaries"]
        }

    def _check_owners(self, exports: Iterable[str]) -> None:
        owners = {owner for export in exports for owner in self._importers(export)}
        if owners:
            raise CannotSplit(
                f"{', '.join(sorted(owners))} import names of tables: deploy them from this release"
                " (they read parameters then), and run this again"
            )

    def _importers(self, export: str) -> list[str]:
        try:
            found: list[str] = self._cloudformation.list_imports(ExportName=export)["Imports"]
        except ClientError:  # so it says that nobody does
            return []
        return found

    def _update(self, template: Template, moved: frozenset[str]) -> None:
        parameters = [
            {"ParameterKey": name, "UsePreviousValue": True}
            for name in template.get("Parameters", {})
        ]
        self._made(
            self._work,
            partial(self._check, moved=moved),
            ChangeSetType="UPDATE",
            TemplateURL=self._uploaded(template),
            Parameters=parameters,
        )
        self._executed(self._work, "stack_update_complete")

    def _check(self, changes: list[Any], moved: frozenset[str]) -> None:
        """What moves is removed and retained; of all else that lasts, nothing is."""
        others, careless = [], []
        for change in changes:
            resource = change["ResourceChange"]
            if resource["LogicalResourceId"] not in moved:
                others.append(change)
            elif resource["Action"] != "Remove" or resource.get("PolicyAction") != "Retain":
                careless.append(resource["LogicalResourceId"])
        wrong = [f"{each} would be deleted" for each in careless] + lasting.replaced(others)
        if wrong:
            raise CannotSplit(f"not done, because of {', '.join(wrong)}")

    def _import(self, work: Template, then: Template) -> None:
        template, record = importing(then), then["Metadata"][_RECORD]
        role = {"RoleARN": work["RoleARN"]} if "RoleARN" in work else {}
        self._made(
            self._data,
            lambda _: None,
            ChangeSetType="IMPORT",
            TemplateBody=json.dumps(template),
            ResourcesToImport=[
                {
                    "ResourceType": each["Definition"]["Type"],
                    "LogicalResourceId": name,
                    "ResourceIdentifier": each["Identifier"],
                }
                for name, each in sorted(record.items())
            ],
            **role,
        )
        self._executed(self._data, "stack_import_complete")

    def _made(self, stack: str, check: Callable[[list[Any]], None], **request: Any) -> None:
        """A change set that *check* has nothing against."""
        named = {"StackName": stack, "ChangeSetName": _CHANGE_SET}
        if self._described(stack):
            self._cloudformation.delete_change_set(**named)  # of who was interrupted
        self._cloudformation.create_change_set(**named, Capabilities=_CAPABILITIES, **request)
        waiter = self._cloudformation.get_waiter("change_set_create_complete")
        try:
            waiter.wait(**named, WaiterConfig=_POLL)
        except WaiterError as error:
            reason = error.last_response.get("StatusReason", str(error))
            raise CannotSplit(f"{stack}: no change set: {reason}") from None
        try:
            check(self._changes(named))
        except CannotSplit:
            self._cloudformation.delete_change_set(**named)
            raise

    def _changes(self, named: Mapping[str, str]) -> list[Any]:
        pages = self._cloudformation.get_paginator("describe_change_set").paginate(**named)
        return [each for page in pages for each in page["Changes"]]

    def _executed(self, stack: str, waiter: str) -> None:
        named = {"StackName": stack, "ChangeSetName": _CHANGE_SET}
        self._cloudformation.execute_change_set(**named)
        try:
            self._cloudformation.get_waiter(waiter).wait(StackName=stack, WaiterConfig=_POLL)
        except WaiterError as error:
            raise CannotSplit(f"{stack} was not changed, and its events say why: {error}") from None

    def _at_rest(self, stack: Template) -> None:
        if not stack["StackStatus"].endswith("_COMPLETE"):
            raise CannotSplit(f"{self._work} is {stack['StackStatus']}: wait until it is at rest")

    def _described(self, stack: str) -> Template | None:
        try:
            (found,) = self._cloudformation.describe_stacks(StackName=stack)["Stacks"]
        except ClientError as error:
            if error.response["Error"]["Code"] == _NO_STACK:
                return None
            raise
        described: Template = found
        return described

    def _template(self, stack: str) -> Template:
        asked = {"StackName": stack, "TemplateStage": "Original"}
        body = self._cloudformation.get_template(**asked)["TemplateBody"]
        found: Template = json.loads(body) if isinstance(body, str) else body
        return found

    def _uploaded(self, template: Template) -> str:
        """Its address in the CDK's own bucket: it is too large to be sent along."""
        toolkit = self._described(_TOOLKIT)
        if toolkit is None:
            raise CannotSplit(f"there is no stack {_TOOLKIT}: cdk bootstrap makes it")
        outputs = {each["OutputKey"]: each["OutputValue"] for each in toolkit["Outputs"]}
        body = json.dumps(template).encode()
        key = f"tidings-split/{self._work}-{sha256(body).hexdigest()}.json"
        self._s3.put_object(Bucket=outputs[_BUCKET], Key=key, Body=body)
        return f"{self._s3.meta.endpoint_url}/{outputs[_BUCKET]}/{key}"


def steps(stage: str, assembly: Path, clients: Clients) -> Iterator[Step]:
    """Each step, once the one before it is done; each looks at the account anew."""
    while step := Split(stage, assembly, clients).next():
        yield step


def main() -> None:
    arguments = [each for each in sys.argv[1:] if each != "--yes"]
    if len(arguments) != 1:
        sys.exit("python -m infra.split STAGE [--yes]")
    made: Any = boto3.client  # its stubs want the name of the service as a literal
    (stage,) = arguments
    try:
        for step in steps(stage, ASSEMBLY, made):
            sys.stdout.write(f"{step.says}\n")
            if "--yes" not in sys.argv:
                sys.exit("nothing was done: with --yes it is, and the steps behind it")
            step.does()
    except (CannotSplit, FileNotFoundError) as problem:
        sys.exit(str(problem))
    sys.stdout.write(f"split; next: cdk deploy {stack_name(stage)}\n")


if __name__ == "__main__":
    main()
