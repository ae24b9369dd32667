"""All commands of `tidings`, with the text of their help on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import click

from tidings.client.cli.main import main
from tidings.sync.command import ANSWERS
from tidings.sync.table import table

COLUMNS = 80


@dataclass(frozen=True)
class Found:
    """A command, with its name below `tidings` and its help."""

    name: str
    command: click.Command
    help: str

    @property
    def options(self) -> set[str]:
        return {name for each in self.command.params for name in each.opts}

    @property
    def is_group(self) -> bool:
        return isinstance(self.command, click.Group)


@cache
def every_command() -> Sequence[Found]:
    """Return every command and group, also those that `tidings sync` selects by its argument."""
    answers = {**ANSWERS, "table": table}
    root = _context(main, "tidings", None)
    of_sync = _context(main.commands.get("sync", click.Command("sync")), "sync", root)
    return [
        *_below(main, root),
        *(_found(command, _context(command, name, of_sync)) for name, command in answers.items()),
    ]


def _below(command: click.Command, context: click.Context) -> Iterator[Found]:
    yield _found(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _below(below, _context(below, name, context))


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    settings = {**command.context_settings, "terminal_width": COLUMNS}
    return click.Context(command, info_name=name, parent=parent, **settings)


def _found(command: click.Command, context: click.Context) -> Found:
    name = context.command_path.removeprefix("tidings").strip()
    command._help_option = None  # click caches it, without `-h` if a test called only this part
    return Found(name, command, command.get_help(context))
