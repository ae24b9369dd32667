"""A ratchet: sentences that CONTRIBUTING.md asks to avoid may only become fewer."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.style.source import ROOT

# A pattern for each kind of sentence, with a better one as the hint.
PATTERNS = {
    "name the person or program that `who` and `whose` refer to": r"\b[Ww]ho(se|ever)?\b",
    "name the thing instead of beginning with `what`": r"(^|[.;:] )[Ww]hat (is|was|it|the|has|a)\b",
    "write no client, another process, every caller": r"\b([Nn]|[Ss]ome|[Aa]ny|[Ee]very)body\b",
    "write after, in addition to or during": r"\b([Bb]ehind|[Bb]eside|[Aa]mid|[Mm]eanwhile)\b",
    "programs send, receive and request": r"\b([Tt]ells?|[Tt]old|[Hh]ears?|[Hh]eard|bears?)\b",
    "write again, repair, expensive, or over time": r"\b(anew|mend(s|ed)?|dear|by and by)\b",
    "use a word of the glossary": r"\b([Dd]oorbells?|[Tt]all(y|ies)|[Vv]eil(ed)?|[Dd]epartures?)\b",
}
# How many there are at most, by folder. Lower a number after rewriting some.
FOUND = {"src functions infra": 14, "docs README.md CONTRIBUTING.md": 30, "tests bench": 116}
_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_COMMENT = re.compile(r"(?:^|\s)# (.*)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def prose(path: Path) -> str:
    """Return the docstrings and comments of a module, or the text of a document without code."""
    text = path.read_text()
    if path.suffix == ".py":
        text = "\n".join([*_DOCSTRING.findall(text), *_COMMENT.findall(text)])
    return _CODE.sub("", text)


def files(places: str) -> list[Path]:
    """Return the modules and documents below *places*, without the decisions, which stay."""
    found = list[Path]()
    for each in places.split():
        place = ROOT / each
        some = [place] if place.is_file() else [*place.rglob("*.py"), *place.rglob("*.md")]
        found += [path for path in some if "adr" not in path.parts and path != Path(__file__)]
    return found


@pytest.mark.parametrize("places", FOUND)
def test_fewer_sentences_are_hard_to_read(places: str) -> None:
    counts = Counter[str]()
    for path in files(places):
        text = prose(path)
        counts.update({hint: len(re.findall(rule, text, re.M)) for hint, rule in PATTERNS.items()})
    total = counts.total()
    assert total <= FOUND[places], f"rewrite the new ones: {counts}"
