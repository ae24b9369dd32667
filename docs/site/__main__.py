"""Build the documentation into the folder site/.

    python -m docs.site [--repository URL]

URL is the address below which a host shows the files of the repository, for example
https://host/owner/name/blob/main. Without it, the site has a page for each linked file.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from docs.site import links, reference
from docs.site.pages import ROOT, BrokenLink, Site, titled

BUILD = ROOT / "build/site"  # the staged documents and the complete configuration
HTML = "html"  # the folder in `BUILD` into which the generator writes
# The sections of the site, with their pages in order. A pattern adds the other pages by name.
NAVIGATION: Mapping[str, Sequence[str]] = {
    "Start": (
        "index.md",
        *(f"start/{each}.md" for each in ("INSTALL", "BACKEND", "FRONTEND", "*")),
    ),
    "Guides": ("guides/*.md",),
    "Operations": ("operations/*.md",),
    "Concepts": ("concepts/LOG.md", "concepts/DELIVERY.md", "concepts/*.md", "COMPARISON.md"),
    "Reference": ("PROTOCOL.md", "reference/*.md", "project/CHANGELOG.md", "changes/*.md"),
    "Contribute": (
        *("project/CONTRIBUTING.md", "design/ARCHITECTURE.md", "design/*.md", "project/*.md"),
        "adr/README.md",
    ),
}
# Pages that only other pages link to: files of the repository, and the decisions.
UNLISTED = ("source/", "adr/")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Failed(Exception):
    """The site was not built, or has broken links."""


def build(target: Path, repository: str = "") -> None:
    """Build the site into the folder *target*.

    Raises:
        BrokenLink: a document links to a file that does not exist.
        Failed: the generator warned, a link is broken, or a page is not in the navigation.
    """
    staged = BUILD / "docs"
    Site(staged, repository).stage()
    for page, text in reference.pages().items():
        (staged / page).parent.mkdir(parents=True, exist_ok=True)
        (staged / page).write_text(text)
    config = BUILD / "mkdocs.yml"
    config.write_text(configuration(staged))
    zensical = Path(sys.executable).parent / "zensical"
    command = [str(zensical), "build", "--strict", "--clean", "--config-file", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    output = _COLOURS.sub("", done.stdout + done.stderr)
    if done.returncode or "Warning" in output:
        raise Failed(output.partition("Traceback")[0])
    found = list(links.problems(BUILD / HTML))
    if found:
        raise Failed("\n".join(found))
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(BUILD / HTML, target)


def configuration(staged: Path) -> str:
    """Return the configuration for the documents in *staged*, with their navigation."""
    found = {"docs_dir": staged.name, "site_dir": HTML, "nav": navigation(staged)}
    form = Path(__file__).with_name("mkdocs.yml").read_text()
    return form + yaml.safe_dump(found, sort_keys=False)


def navigation(staged: Path) -> list[dict[str, Any]]:
    """Return the sections of the site.

    Raises:
        Failed: a page is in no section.
    """
    missing = {str(path.relative_to(staged)) for path in staged.rglob("*.md")}
    sections = []
    for title, patterns in NAVIGATION.items():
        pages = list[str]()
        for pattern in patterns:
            found = sorted(str(path.relative_to(staged)) for path in staged.glob(pattern))
            pages += [page for page in found if page not in pages]
        missing -= {*pages}
        if pages:
            sections.append({title: list(titled(pages, staged))})
    left = sorted(page for page in missing if not page.startswith(UNLISTED))
    if left:
        raise Failed(f"these pages are in no section of NAVIGATION: {', '.join(left)}")
    return sections


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--repository", default="", metavar="URL")
    given = parser.parse_args(arguments)
    try:
        build(ROOT / "site", given.repository)
    except (BrokenLink, Failed) as error:
        click.echo(error, err=True)
        return 1
    click.echo("built site/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
