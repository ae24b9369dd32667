"""The option `--lineage` of a command."""

from __future__ import annotations

from importlib.util import find_spec

import click


def _checked(ctx: click.Context, param: click.Parameter, wanted: bool) -> bool:
    if wanted and find_spec("openlineage") is None:
        raise click.UsageError("--lineage needs pip install 'tidings[lineage]'")
    return wanted


lineage_option = click.option(
    "--lineage",
    is_flag=True,
    callback=_checked,
    help="Send OpenLineage events of what is read and written, to OPENLINEAGE_URL.",
)
