"""Check the built site: every link and anchor leads somewhere, and no page needs another host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

_LOADED = {("script", "src"), ("img", "src"), ("source", "srcset"), ("iframe", "src")}
_RELATIONS = {"stylesheet", "preload", "icon", "preconnect"}  # of a <link> that a browser loads
_HERE = "http://site"


@dataclass
class Page(HTMLParser):
    """The anchors of one page, its links, and the addresses that a browser loads with it."""

    text: str
    anchors: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        loads = {value for name, value in given.items() if (tag, name) in _LOADED}
        if tag == "link" and _RELATIONS & {*given.get("rel", "").split()}:
            loads.add(given.get("href", ""))
        self.loaded |= loads
        if tag == "a" and "href" in given:
            self.links.add(given["href"])


def problems(site: Path) -> Iterator[str]:
    """Yield a line for each broken link, missing anchor and file of another host below *site*."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        if str(name) == "404.html":  # its addresses begin with the address of the site
            continue
        for address in sorted(page.loaded):
            if urlsplit(address).netloc:
                yield f"{name}: loads {address} from another host"
        for address in sorted(page.links | page.loaded):
            reason = _broken(address, f"{_HERE}/{name}", site, pages)
            if reason:
                yield f"{name}: {address}: {reason}"


def _broken(address: str, base: str, site: Path, pages: dict[Path, Page]) -> str:
    """Return the reason why *address* leads nowhere; empty if it works or leads to another host."""
    if urlsplit(address).scheme in ("data", "javascript", "mailto"):
        return ""
    url, anchor = urldefrag(urljoin(base, address))
    if not url.startswith(f"{_HERE}/"):
        return ""
    target = site / unquote(urlsplit(url).path).lstrip("/")
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such page"
    if anchor and target in pages and unquote(anchor) not in pages[target].anchors | {"__top"}:
        return "no such anchor"
    return ""
