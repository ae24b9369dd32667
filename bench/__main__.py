"""Run the benchmarks and write `bench/RESULTS.md`.

python -m bench                           run all of them (half an hour)
python -m bench serve units               run some, and print the results only
python -m bench --save serve              run some, and replace their sections
python -m bench serve --checkout ../old   measure the server of another checkout, too
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from . import (
    cold_start,
    costs,
    decoders,
    diff,
    dynamodb,
    feeds,
    load,
    push,
    results,
    serve,
    sources,
    spark,
)
from .results import Section

_SECTIONS: dict[str, Callable[[], Section]] = {
    "units": dynamodb.measure_units,
    "replay": dynamodb.measure_replay,
    "costs": costs.measure,
    "serve": serve.measure,
    "feeds": feeds.measure,
    "planning": push.measure_planning,
    "push": push.measure,
    "load": load.measure,
    "cold_start": cold_start.measure,
    "sources": sources.measure,
    "decoders": decoders.measure,
    "diff": diff.measure,
    "spark": spark.measure,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(_SECTIONS)))
@click.option("--save", is_flag=True, help="Replace the sections of NAMES in bench/RESULTS.md.")
@click.option(
    "--checkout",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Another checkout of the project; `serve` also measures its server.",
)
def main(names: tuple[str, ...], save: bool, checkout: Path | None) -> None:
    """Run the benchmarks NAMES, or all of them and save the results."""
    sections = dict(_SECTIONS)
    sections["serve"] = partial(serve.measure, checkout=checkout)
    found = {}
    for name in names or sections:
        sys.stderr.write(f"measuring {name} ...\n")
        section = sections[name]()
        found[section.title] = section.markdown()
        sys.stdout.write(found[section.title] + "\n")
        sys.stdout.flush()
    if not names or save:
        results.save(found)


if __name__ == "__main__":
    main()
