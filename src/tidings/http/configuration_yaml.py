"""Configurations of changeagent in the subset of YAML that JSON can express.

Aliases and tags are rejected, because aliases can expand a few lines to gigabytes, and tags can
select the type that is constructed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from tidings.core import limits
from tidings.core.errors import InvalidSetting, TooLarge

_YAML_SCALARS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_YAML_PROBLEM_CHARS = 200


def write_yaml(document: Mapping[str, object]) -> str:
    return str(yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True))


class _PlainLoader(yaml.SafeLoader):
    """A loader that reads scalars without a JSON type, such as dates, as strings."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the base class declares it without `ClassVar`)
        first: [pair for pair in known if pair[0] in _YAML_SCALARS]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of *node*.

        Raises:
            ValueError: a key is repeated, so one of its values would be ignored.
        """
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value):
            raise ValueError("a key is given more than once")
        return mapping


def read_yaml(body: bytes) -> object:
    """Return the single document in *body*.

    Raises:
        TooLarge: the body exceeds the size limit of configurations.
        InvalidSetting: the body is not YAML, or JSON cannot express the document.
    """
    if len(body) > limits.CONFIGURATION_BYTES_MAX:
        most = limits.CONFIGURATION_BYTES_MAX
        raise TooLarge(f"a configuration holds at most {most} bytes", field="body", value=len(body))
    try:
        _check_yaml(body)
        return yaml.load(body, Loader=_PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = _problem_of(error)[:_YAML_PROBLEM_CHARS]
        raise InvalidSetting(f"Error parsing YAML: {problem}") from None


def _problem_of(error: Exception) -> str:
    """Return the problem and its location, but no text of the document, which may have secrets."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} in line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())


def _check_yaml(body: bytes) -> None:
    """Check the parser's events before any value is constructed from them."""
    depth = 0
    for event in yaml.parse(body, Loader=_PlainLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError("anchors and aliases are not allowed")
        if getattr(event, "tag", None) is not None:
            raise ValueError("tags are not allowed")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > limits.JSON_DEPTH_MAX:
            raise ValueError(f"nested deeper than {limits.JSON_DEPTH_MAX}")
