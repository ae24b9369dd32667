"""Compare answers of a host with its `/openapi.json`: statuses, content types, bodies and codes."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

import httpx
import jsonschema_rs

from tidings.http.openapi import document
from tidings.http.router import pattern

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Statuses of a request that violates HTTP itself or stops early (PROTOCOL 4.13), and redirects
# (12.12), which are not answers of a route.
OF_HTTP = frozenset({301, 307, 308, 405, 408, 431})


class Description:
    """The served description of the routes."""

    def __init__(self) -> None:
        self.document = document(["main"])
        self._paths = [
            (pattern(path.replace("{id}", "{id}")), methods)
            for path, methods in sorted(
                self.document["paths"].items(), key=lambda item: item[0].count("{")
            )
        ]
        self._validators: dict[str, jsonschema_rs.Validator] = {}

    @cached_property
    def _root(self) -> dict[str, Any]:
        return {"$schema": DIALECT, "components": self.document["components"]}

    def problem(self, answer: httpx.Response) -> str:
        """Return the difference between *answer*, which was read, and the description, or ""."""
        path = answer.request.url.raw_path.decode().partition("?")[0]
        operation = self._operation(answer.request.method, path)
        status = answer.status_code
        if operation is None or status in OF_HTTP:
            return ""
        where = f"{answer.request.method} {path}: {status} {answer.text[:300]}"
        response = operation["responses"].get(str(status))
        if response is None:
            return f"{where}\nthe status is not described"
        response = self._resolve(response)
        content = response.get("content")
        if not content or not answer.content:
            return "" if not answer.content else f"{where}\nno body is described"
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if kind not in content:
            return f"{where}\nthe content type {kind!r} is not described"
        return self._body_problem(where, kind, content[kind], answer.text)

    def _body_problem(self, where: str, kind: str, media: dict[str, Any], text: str) -> str:
        schema = media.get("schema", {})
        if not kind.endswith("json") or kind == "application/x-ndjson":
            return ""
        body = json.loads(text)
        for error in self._validator(schema).iter_errors(body):
            return f"{where}\n{error.message} at {error.instance_path}"
        examples = media.get("examples")
        if examples and (code := body["error"]["code"]) not in examples:
            return f"{where}\nthe code {code} is not described"
        return ""

    def _validator(self, schema: dict[str, Any]) -> jsonschema_rs.Validator:
        key = json.dumps(schema)
        if key not in self._validators:
            self._validators[key] = jsonschema_rs.Draft202012Validator({**self._root, **schema})
        return self._validators[key]

    def _operation(self, method: str, path: str) -> dict[str, Any] | None:
        for regex, methods in self._paths:
            if regex.fullmatch(path):
                found: dict[str, Any] | None = methods.get(method.lower())
                return found
        return None

    def _resolve(self, node: dict[str, Any]) -> dict[str, Any]:
        target: Any = node
        if "$ref" in node:
            target = self.document
            for name in re.split("/", node["$ref"])[1:]:
                target = target[name]
        resolved: dict[str, Any] = target
        return resolved
