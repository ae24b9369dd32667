"""Stage the documents, so that a link to any file of the repository leads to a page of the site."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Documents outside docs/ that are pages of the site, with the path of their page.
PROJECT = {
    "README.md": "project/README.md",
    "CONTRIBUTING.md": "project/CONTRIBUTING.md",
    "SECURITY.md": "project/SECURITY.md",
    "CHANGELOG.md": "project/CHANGELOG.md",
    "bench/RESULTS.md": "project/RESULTS.md",
    "clients/javascript/README.md": "project/JAVASCRIPT.md",
}
# Files that a generated page of the reference shows.
SHOWN = {"clients/javascript/src/index.d.ts": "reference/JAVASCRIPT.md"}
SOURCES = "source"  # the folder of the pages that show files outside docs/
COPIED = {".md", ".png", ".svg", ".webp"}
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
_LANGUAGES = {
    ".go": "go",
    ".html": "html",
    ".js": "javascript",
    ".json": "json",
    ".py": "python",
    ".sh": "sh",
    ".yaml": "yaml",
    ".yml": "yaml",
}
_CODE = re.compile(r"^(```+).*?^\1|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(\]\(|\b(?:src|srcset|href)=\")([^)\s\"#]+)")


class BrokenLink(Exception):
    """A document links to a file that does not exist."""

    def __init__(self, path: str, address: str) -> None:
        super().__init__(f"{path}: {address}: no such file")


@dataclass(frozen=True)
class Site:
    """The staged site: its folder, and the addresses of files that are not pages.

    *repository* is the address below which a host shows the files of the repository, for example
    `https://host/owner/name/blob/main`. Without it, a page of the site shows each file.
    """

    folder: Path
    repository: str = ""

    def stage(self) -> None:
        """Write all documents, and a page for each file that they link to.

        Raises:
            BrokenLink: a document links to a file that does not exist.
        """
        shutil.rmtree(self.folder, ignore_errors=True)
        linked = set[str]()
        for path, page in documents().items():
            target = self.folder / page
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.suffix == ".md":
                text = self._rewritten(path, page, linked.add)
                target.write_text(f"{_UNSEARCHED}{text}" if page.startswith("adr/") else text)
            else:
                shutil.copyfile(ROOT / path, target)
        for path in sorted(linked):
            target = self.folder / source_page(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(shown(path))

    def _rewritten(self, path: str, page: str, link: Callable[[str], None]) -> str:
        """Return the text of the document *path* with the links of *page*."""

        def moved(found: re.Match[str]) -> str:
            prefix, address = found.groups()
            return prefix + self._address(path, page, address, link)

        return outside_code((ROOT / path).read_text(), lambda text: _LINK.sub(moved, text))

    def _address(self, path: str, page: str, address: str, link: Callable[[str], None]) -> str:
        if "://" in address or address.startswith(("mailto:", "/")):
            return address
        target = os.path.relpath((ROOT / path).parent / address, ROOT)
        if not (ROOT / target).exists():
            raise BrokenLink(path, address)
        here = {**documents(), **SHOWN}
        if target in here:
            target = here[target]
        elif self.repository:
            return f"{self.repository.rstrip('/')}/{target}"
        else:
            link(target)
            target = source_page(target)
        return os.path.relpath(target, Path(page).parent)


@cache
def documents() -> Mapping[str, str]:
    """Return the path of each document and picture, with the path of its page."""
    ours = [path for path in sorted(DOCS.rglob("*")) if path.suffix in COPIED]
    return {
        **{str(path.relative_to(ROOT)): str(path.relative_to(DOCS)) for path in ours},
        **{path: page for path, page in PROJECT.items() if (ROOT / path).exists()},
    }


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return *text* with *change* applied to everything that is not code."""
    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(text[end:])])


def source_page(path: str) -> str:
    """Return the path of the page that shows the file or folder *path*."""
    return f"{SOURCES}/{path.replace('.', '-')}.md"


def shown(path: str) -> str:
    """Return a page with the content of a file, or with the names in a folder."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(each.name for each in place.iterdir() if not each.name.startswith("__"))
        return f"{_UNSEARCHED}# {path}\n\n{fenced(chr(10).join(names))}"
    language = _LANGUAGES.get(place.suffix, "text")
    return f"{_UNSEARCHED}# {path}\n\n{fenced(place.read_text(), language)}"


def fenced(text: str, language: str = "text") -> str:
    """Return *text* as a block of code, whatever it contains."""
    fence = "`" * max(3, 1 + max((len(each) for each in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def titled(pages: Sequence[str], folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield the entries of the navigation for *pages*, with the first heading of each."""
    for page in pages:
        found = re.search(r"^# (.+)$", (folder / page).read_text(), re.MULTILINE)
        title = found[1] if found else Path(page).stem
        yield {title.replace("`", ""): page}
