"""The synthesised templates of a stage, read to create its resources one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from tests.infra.templates import of_assembly
from tidings.aws.config.stages import stack_name

Named = Callable[[str, str | None], str]  # of a resource: its reference, or an attribute

_IN_TEXT = re.compile(r"\$\{([^}]+)\}")


@dataclass(frozen=True)
class Template:
    """What `cdk synth` wrote to *assembly* for a stage, as one template, with its assets."""

    assembly: Path
    stage: str

    @cached_property
    def _body(self) -> dict[str, Any]:
        return of_assembly(self.assembly, self.stage)

    @property
    def resources(self) -> dict[str, dict[str, Any]]:
        """By their logical ids."""
        found: dict[str, dict[str, Any]] = self._body["Resources"]
        return found

    @property
    def outputs(self) -> dict[str, Any]:
        return {name: each["Value"] for name, each in self._body["Outputs"].items()}

    def of_type(self, kind: str) -> list[str]:
        return [name for name, each in self.resources.items() if each["Type"] == kind]

    def zipped(self, key: str) -> bytes:
        """Return the asset that a function or a layer names by the *key* of an object on S3."""
        hashed = key.removesuffix(".zip")
        listed = self.assembly / f"{stack_name(self.stage)}.assets.json"
        assets = json.loads(listed.read_text())["files"]
        folder = self.assembly / assets[hashed]["source"]["path"]
        buffer = BytesIO()
        with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
            for file in sorted(each for each in folder.rglob("*") if each.is_file()):
                archive.write(file, str(file.relative_to(folder)))
        return buffer.getvalue()


def resolved(value: Any, named: Named) -> Any:
    """*value* with every reference in it replaced by what *named* says."""
    match value:
        case {"Ref": str(name)}:
            return named(name, None)
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return named(name, attribute)
        case {"Fn::Sub": str(text)}:
            return _IN_TEXT.sub(lambda found: named(found[1], None), text)
        case dict():
            return _called({key: resolved(each, named) for key, each in value.items()})
        case list():
            return [resolved(each, named) for each in value]
    return value


def _called(value: dict[str, Any]) -> Any:
    """Return the result of a function of texts, with arguments without references."""
    match value:
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(parts)
        case {"Fn::Split": [str(separator), str(text)]}:
            return text.split(separator)
        case {"Fn::Select": [place, list(parts)]}:
            return parts[int(place)]
    return value
