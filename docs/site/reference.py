"""The pages of the reference, generated from the code."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import click
from openapidocs.mk.v3 import OpenAPIV3DocumentationHandler

from docs.site.pages import ROOT, fenced, outside_code
from tidings import client
from tidings.aws.config.settings import METRICS_NAMESPACE, SETTINGS
from tidings.client.cli.main import main
from tidings.core.metrics import METRICS
from tidings.http import asyncapi, openapi
from tidings.http.settings import Setting, Shared
from tidings.server.metrics import COUNTERS, FAMILIES
from tidings.server.settings import Settings

TYPES = ROOT / "clients/javascript/src/index.d.ts"
# Each declaration of a module begins with its comment, if it has one, and is not indented.
_BEGINS = re.compile(r"^(?=/\*\*)|(?<!\*/\n)^(?=export |interface )", re.MULTILINE)
_DECLARATION = re.compile(
    r"(?:/\*\*(?P<comment>.*?)\*/\n)?(?P<code>(?:export )?\w+ (?P<name>\w+).*)", re.DOTALL
)
FEED_PATH = "/feeds/{feed}"
# Parts of the rendered OpenAPI document that add nothing: its server is the address of the feed,
# parameters are also in each operation, and the renderer makes up examples.
_LEFT_OUT = re.compile(
    r"^## (?:Servers|Common parameters|Tags)\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE
)
_MADE_UP = re.compile(
    r"\n *```\w+\n(?:(?!```).)*```\n *<span class=\"small-note\">.*?</em>", re.DOTALL
)
_FOLDED = re.compile(r"\?\?\? note \"Description\"\n((?: {4}.*\n|\n)+)")


def pages() -> dict[str, str]:
    """Return the text of each page by its path."""
    return {
        "reference/COMMANDS.md": commands(),
        "reference/SETTINGS.md": settings(),
        "reference/METRICS.md": metrics(),
        "reference/HTTP.md": http(),
        "reference/MESSAGES.md": messages(),
        "reference/PYTHON.md": python(),
        "reference/JAVASCRIPT.md": javascript(),
    }


def commands() -> str:
    """Return a page with the help of every command."""
    return (
        "# Commands\n\n"
        "[The command line](../guides/COMMANDS.md) describes what all commands have in common.\n\n"
        + "\n".join(_command(main, click.Context(main, info_name="tidings")))
    )


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the parts of the page for *command*, followed by its subcommands."""
    level = min(2 + context.command_path.count(" "), 4)
    yield f"{'#' * level} {context.command_path}\n"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"{fenced(usage)}\n{_help(command.help or '')}\n"
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    records = [each.get_help_record(context) for each in options]
    rows = [(f"`{name}`", text) for name, text in filter(None, records) if "--help" not in name]
    if rows:
        yield _table(("option", "effect"), rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            if subcommand and not subcommand.hidden:
                below = click.Context(subcommand, parent=context, info_name=name)
                yield from _command(subcommand, below)


def _help(text: str) -> str:
    """Return a help text as Markdown. In a paragraph that begins with `\\b`, lines are kept."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    parts = [
        fenced(each.partition("\n")[2], "text")
        if each.startswith("\b")
        else outside_code(each, _escaped)
        for each in paragraphs
    ]
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    return re.sub(r"([*<_\[|])", r"\\\1", text)


def settings() -> str:
    """Return a page with the variables of a server and of a stage."""
    shared = Shared.declared()
    return (
        "# Settings\n\n"
        "A server reads these variables from its environment or from `--setting NAME=VALUE`, "
        "a stage from `infra/settings.py`.\n\n"
        f"## A server and a stage\n\n{variables(shared)}\n"
        f"## A server\n\n{variables(Settings.declared(), shared)}\n"
        f"## A stage\n\n{variables(SETTINGS, shared)}"
    )


def variables(settings: Iterable[Setting], others: Container[Setting] = ()) -> str:
    """Return a table of *settings* without *others*."""
    rows = [
        (f"`{each.variable}`", _default(each.default), each.meaning)
        for each in settings
        if each not in others
    ]
    return _table(("variable", "default", "meaning"), rows)


def server_metrics() -> list[tuple[str, ...]]:
    """Return the name, type, labels and meaning of each metric of a server."""
    return [
        (
            f"`{each.sample}`",
            each.kind,
            ", ".join(f"`{name}`" for name in each.labels),
            each.meaning,
        )
        for each in (*FAMILIES, *COUNTERS)
    ]


def metrics() -> str:
    """Return a page with the metrics of a server at `/metrics`, and of a stage in CloudWatch."""
    server = server_metrics()
    stage = [(f"`{each.name}`", each.unit, each.meaning) for each in METRICS]
    return (
        "# Metrics\n\n[MONITORING.md](../operations/MONITORING.md) describes how to read them.\n\n"
        f"## A server\n\n{_table(('metric', 'type', 'labels', 'meaning'), server)}\n"
        f"## A stage, in the namespace `{METRICS_NAMESPACE}` of CloudWatch\n\n"
        f"{_table(('metric', 'unit', 'meaning'), stage)}"
    )


def http() -> str:
    """Return a page with the routes, from the document that a host serves."""
    document = openapi.document(["main"])
    _simplify(document)
    text = OpenAPIV3DocumentationHandler(document, style="MKDOCS").write()
    text = _MADE_UP.sub("", _LEFT_OUT.sub("", text))
    text = _FOLDED.sub(lambda found: inspect.cleandoc(found[1]) + "\n\n", text)
    text = text[text.index("\n## ") :]  # without the heading of the document
    return (
        "# HTTP\n\n"
        "A host serves this description at `/openapi.json`; generators of clients read it. "
        "[PROTOCOL.md](../PROTOCOL.md) has the rules of each route. "
        "A path without `/feeds/{feed}` is that of the feed `main`.\n\n" + text
    )


def _simplify(document: dict[str, Any]) -> None:
    """Leave out the paths of the default feed, and list the errors of an operation in its text."""
    paths = document["paths"]
    for path in [each for each in paths if each == "/" or FEED_PATH + each in paths]:
        del paths[path]
    for operation in (each for path in paths.values() for each in path.values()):
        answers = operation["responses"]
        errors = [each for each in answers.values() if "$ref" in each]
        operation["responses"] = {
            status: each for status, each in answers.items() if each not in errors
        }
        names = [each["$ref"].rpartition("/")[2].split(".") for each in errors]
        listed = [
            f"{status} {', '.join(f'`{code}`' for code in codes)}" for status, *codes in names
        ]
        if listed:
            operation["description"] += f"\n\nErrors: {'; '.join(listed)}."
    document["components"].pop("responses")


def messages() -> str:
    """Return a page with the messages of streams, WebSockets and webhooks."""
    document = asyncapi.document("http://127.0.0.1:8042")
    components, parts = document["components"], []
    for name, channel in document["channels"].items():
        servers = [each["$ref"].rpartition("/")[2] for each in channel.get("servers", ())]
        prefix = document["servers"][servers[0]]["pathname"].rstrip("/") if servers else ""
        address = f" at `{prefix}{channel['address'].rstrip('/')}`" if servers else ""
        parts.append(f"## {channel['title']}{address}\n\n{channel['description']}\n")
        for operation in document["operations"].values():
            if operation["channel"]["$ref"] == f"#/channels/{name}":
                parts.append(_operation(operation))
        for message in channel["messages"]:
            parts.append(_message(message, components["messages"][message]))
    schemas = (
        f"### {name} {{#schema-{name.lower()}}}\n\n{_folded('JSON Schema', schema)}"
        for name, schema in components["schemas"].items()
    )
    return (
        "# Messages\n\n"
        "A host serves this description at `/asyncapi.json`; generators of clients read it. "
        "Numbers in parentheses are sections of [PROTOCOL.md](../PROTOCOL.md).\n\n"
        + "\n".join(parts)
        + "\n## Schemas\n\n"
        + "\n".join(schemas)
    )


def _operation(operation: dict[str, Any]) -> str:
    """Return a line with the action of the host and the messages of the operation."""
    names = [each["$ref"].rpartition("/")[2] for each in operation["messages"]]
    replies = [
        each["$ref"].rpartition("/")[2] for each in operation.get("reply", {}).get("messages", ())
    ]
    answered = f", answered by {_linked(replies)}" if replies else ""
    kind = "The host sends" if operation["action"] == "send" else "The client sends"
    return f"- {kind} {_linked(names)}{answered}: {operation['summary']}.\n"


def _linked(names: Sequence[str]) -> str:
    return ", ".join(f"[`{name}`](#message-{name.lower()})" for name in names)


def _message(name: str, message: dict[str, Any]) -> str:
    schema = message["payload"]["$ref"].rpartition("/")[2]
    examples = "".join(
        fenced(json.dumps(each["payload"], indent=2), "json")
        for each in message.get("examples", ())
    )
    return (
        f"### {name} {{#message-{name.lower()}}}\n\n"
        f"`{message['contentType']}`, [{schema}](#schema-{schema.lower()}): "
        f"{message['summary']}.\n\n{examples}"
    )


def _folded(title: str, value: object) -> str:
    """Return a block that opens on a click, with *value* as JSON."""
    return f'??? note "{title}"\n\n{indent(fenced(json.dumps(value, indent=2), "json"), " " * 4)}'


def python() -> str:
    """Return a page with the public classes and functions of `tidings.client`."""
    names = "".join(f"::: tidings.client.{name}\n\n" for name in client.__all__)
    return (
        "# Python\n\n"
        "[CLIENT.md](../guides/CLIENT.md) is the guide. These names are in `tidings.client`; "
        "those of producers and consumers are in `tidings`, too.\n\n" + names
    )


def javascript() -> str:
    """Return a page with the declarations of the npm package."""
    parts = [
        f"## {each.name}\n\n{each.comment}\n\n{fenced(each.code, 'typescript')}"
        for each in declarations(TYPES.read_text())
    ]
    return (
        "# JavaScript\n\n"
        "[The README](../project/JAVASCRIPT.md) is the guide. These are the types of "
        "`@tidings/client`; times are milliseconds.\n\n" + "\n".join(parts)
    )


@dataclass(frozen=True)
class Declaration:
    """A declaration of a module in TypeScript: its name, its comment as Markdown, and its code."""

    name: str
    comment: str
    code: str


def declarations(text: str) -> Iterator[Declaration]:
    """Yield the declarations of a module, in order."""
    for found in filter(None, map(_DECLARATION.fullmatch, _BEGINS.split(text))):
        comment = re.sub(r"^ *\*? ?", "", found["comment"] or "", flags=re.MULTILINE).strip()
        comment = re.sub(r"@throws \{(\w+)\}", r"Throws `\1`:", comment)
        yield Declaration(found["name"], comment, found["code"])


def _default(default: str | None) -> str:
    if default is None:
        return "required"
    return f"`{default}`" if default else "empty"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [[each.replace("|", "\\|").replace("\n", " ") for each in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
