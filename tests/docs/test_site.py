"""`make docs`: the site is built without a warning, and its links and references are checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from docs.site import __main__ as site
from docs.site import links, pages, reference
from tidings import client
from tidings.aws.config.settings import SETTINGS
from tidings.client.cli.main import main
from tidings.core.metrics import METRICS
from tidings.http import asyncapi, openapi
from tidings.server.metrics import FAMILIES


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site; the build fails for a warning or a broken link."""
    target = tmp_path_factory.mktemp("site")
    site.build(target)
    return target


def _text(built: Path, page: str) -> str:
    return (built / page / "index.html").read_text()


def test_the_site_needs_no_other_host(built: Path) -> None:
    """Not even for fonts, so that it works where the project works."""
    assert len(list(built.rglob("index.html"))) > 150
    assert list(links.problems(built)) == []
    assert "fonts.googleapis" not in _text(built, "PROTOCOL")


def test_the_search_leaves_out_decisions(built: Path) -> None:
    """They are linked from a page of the section for contributors."""
    found = {each["location"] for each in json.loads((built / "search.json").read_text())["items"]}

    assert (built / "adr/0001-one-request-is-one-page/index.html").exists()
    assert any(each.startswith("guides/SERVER/") for each in found)
    assert [each for each in found if each.startswith(("adr/", "source/"))] == []


def test_a_link_out_of_docs_leads_to_a_page(built: Path) -> None:
    """The documents of the project are pages, and other files are shown."""
    text = _text(built, "guides/CLIENT")

    assert "source/examples/python/produce-py/" in text
    assert "Post changes, each exactly once" in _text(built, "source/examples/python/produce-py")
    assert "project/JAVASCRIPT/" in text


def test_a_repository_shows_the_files_instead(tmp_path: Path) -> None:
    """Only if the builder names its address."""
    pages.Site(tmp_path, "https://host/owner/name/blob/main").stage()
    text = (tmp_path / "guides/CLIENT.md").read_text()

    assert "(https://host/owner/name/blob/main/examples/python/produce.py)" in text
    assert not (tmp_path / "source").exists()


def test_a_link_to_a_missing_file_names_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is rendered."""
    (tmp_path / "README.md").write_text("`[code](no.py)` and [a file](no.py)")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "documents", lambda: {"README.md": "project/README.md"})

    with pytest.raises(pages.BrokenLink, match=re.escape("README.md: no.py: no such file")):
        pages.Site(tmp_path / "site").stage()


def test_the_reference_has_every_command(built: Path) -> None:
    """With its options, as its help."""
    text = _text(built, "reference/COMMANDS")
    commands = list(_commands(main, click.Context(main, info_name="tidings")))

    assert len(commands) > 60
    assert [each for each in commands if f">{each}<" not in text] == []
    assert "<code>--max-delete-share" in text


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    yield context.command_path
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below
            yield from _commands(below, click.Context(below, parent=context, info_name=name))


def test_the_reference_has_every_setting_route_and_class(built: Path) -> None:
    settings, http = _text(built, "reference/SETTINGS"), _text(built, "reference/HTTP")
    python = _text(built, "reference/PYTHON")

    assert [each.variable for each in SETTINGS if each.variable not in settings] == []
    headings = [re.sub("<.*?>", "", each) for each in re.findall("<h3.*?<a ", http)]
    paths = openapi.document(["main"])["paths"]
    routes = {
        f"{method.upper()} {path}"
        for path, each in paths.items()
        for method in each
        if path != "/" and reference.FEED_PATH + path not in paths
    }
    assert len(routes) > 50
    assert {re.sub("<.*", "", each).strip() for each in headings} >= routes
    assert [name for name in client.__all__ if f'id="tidings.client.{name}"' not in python] == []


def test_the_reference_has_every_message_and_metric(built: Path) -> None:
    messages, metrics = _text(built, "reference/MESSAGES"), _text(built, "reference/METRICS")
    components = asyncapi.document("http://127.0.0.1:8042")["components"]

    assert [
        each for each in components["messages"] if f'id="message-{each.lower()}"' not in messages
    ] == []
    assert [each.sample for each in FAMILIES if each.sample not in metrics] == []
    assert [each.name for each in METRICS if each.name not in metrics] == []


def test_the_reference_has_every_declaration_in_javascript() -> None:
    """Complete, with its comment."""
    text = reference.TYPES.read_text()
    found = list(reference.declarations(text))

    assert len(found) == len(re.findall(r"^(?:export |interface )", text, re.M))
    assert all(each.code.count("{") == each.code.count("}") for each in found)
    feed = next(each for each in found if each.name == "Feed")
    assert feed.comment.startswith("The events of a feed") and "Throws `Refused`" in feed.comment


@pytest.mark.parametrize("picture", sorted(pages.DOCS.rglob("*.svg")), ids=lambda each: each.name)
def test_a_diagram_is_accessible(picture: Path) -> None:
    """With a title and a description for screen readers, in dark mode, with the system's fonts."""
    root = ElementTree.fromstring(picture.read_text())
    found = {each.tag.rpartition("}")[2]: each for each in root}

    assert root.attrib["aria-labelledby"] == "title desc" and root.attrib["role"] == "img"
    assert (found["title"].text or "") and len(found["desc"].text or "") > 100
    assert "prefers-color-scheme: dark" in (found["style"].text or "")
    assert "system-ui" in root.attrib["font-family"] and "@font-face" not in picture.read_text()


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ('<a href="../no/">', "no such page"),
        ('<a href="#no">', "no such anchor"),
        ('<a href="../b/#there">', ""),
        ('<img src="no.png">', "no such page"),
        ('<a href="https://host/">', ""),
        ('<script src="https://host/a.js"></script>', "from another host"),
        ('<link rel="stylesheet" href="//host/a.css">', "from another host"),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, link: str, problem: str) -> None:
    for name, text in (("a", link), ("b", '<p id="there">')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(text)
    found = list(links.problems(tmp_path))

    assert bool(found) == bool(problem)
    assert all(problem in each for each in found)


def test_a_page_without_a_section_fails(tmp_path: Path) -> None:
    """So that no page is only reachable by search."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other/PAGE.md").write_text("# Page\n")

    with pytest.raises(site.Failed, match=re.escape("other/PAGE.md")):
        site.navigation(tmp_path)
