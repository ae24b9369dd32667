"""
Parse the subset of YAML that JSON can express: mappings, lists, strings, numbers, booleans, null.

Aliases can expand a few lines to a document of gigabytes, and tags can select the type that is
constructed. Both are rejected, as JSON needs neither.
"""

from __future__ import annotations

from typing import Any

import yaml

from tidings.core import limits
from tidings.core.errors import InvalidSetting, TooLarge

_TYPES = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_PROBLEM_CHARS = 200


class _Plain(yaml.SafeLoader):
    """A loader that reads every other scalar as a string, including dates."""

    yaml_implicit_resolvers = {  # noqa: RUF012 as its base has it
        first: [pair for pair in known if pair[0] in _TYPES]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """
        Return the mapping of *node*.

        Raises:
            ValueError: a key is repeated, so that one of its values would be ignored.
        """
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise ValueError("a key is given more than once")
        return mapping


def read(body: bytes) -> object:
    """
    Return the single document in *body*.

    Raises:
        TooLarge: it exceeds the size limit of configurations.
        InvalidSetting: it is not YAML, or exceeds what JSON can express.
    """
    if len(body) > limits.CONFIGURATION_BYTES_MAX:
        most = limits.CONFIGURATION_BYTES_MAX
        raise TooLarge(f"a configuration holds at most {most} bytes", field="body", value=len(body))
    try:
        _check(body)
        return yaml.load(body, Loader=_Plain)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = _said(error)[:_PROBLEM_CHARS]
        raise InvalidSetting(f"Error parsing YAML: {problem}") from None


def _said(error: Exception) -> str:
    """
    Return the problem and its location without the text of the document, which may hold secrets.
    """
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} in line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())


def _check(body: bytes) -> None:
    """Check the parser's events before any value is constructed from them."""
    depth = 0
    for event in yaml.parse(body, Loader=_Plain):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError("anchors and aliases are not taken")
        if getattr(event, "tag", None) is not None:
            raise ValueError("tags are not taken")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > limits.JSON_DEPTH_MAX:
            raise ValueError(f"nested deeper than {limits.JSON_DEPTH_MAX}")
