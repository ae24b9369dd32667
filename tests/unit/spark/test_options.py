"""What may be asked for, and how it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidings.spark import options
from tidings.spark.options import WrongOption

HERE = {"url": "http://127.0.0.1:8042"}


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"maxpage": "1"}, "option maxpage: is not known"),
        ({"maxPages": "0"}, "option maxPages: must be a whole number from 1"),
        ({"what": "rows"}, "option what: must be log or state, got 'rows'"),
        ({"feed": "No"}, "option feed: must be 1 to 63 of"),
        ({"types": ""}, "option types: must not be empty"),
        ({"endpoint": "http://x"}, "option url: names one way to a feed"),
        ({"logTable": "l"}, "option stateTable: is needed"),
        ({"archive": "file:///a"}, "option archive: is read beside tables"),
        ({"from": "archive"}, "option archive: is needed to read from it"),
        ({"password": "p", "passwordFile": "f"}, "option passwordFile: is given beside password"),
        ({"passwordFile": "nowhere"}, "option passwordFile: cannot read nowhere"),
    ],
)
def test_T39_what_breaks_a_rule_is_refused(given: dict[str, str], rule: str) -> None:
    """Each by the option's name and its rule, unknown ones too."""
    with pytest.raises(WrongOption, match=rule):
        options.parse(HERE | given)


def test_a_way_to_the_feed_is_needed() -> None:
    """Nothing is guessed."""
    with pytest.raises(WrongOption, match="option url: is needed"):
        options.parse({"feed": "main"})


def test_a_password_is_in_no_text(tmp_path: Path) -> None:
    """Whoever prints the options prints no password, given as it is or in a file."""
    file = tmp_path / "password"
    file.write_text("correct horse\n")

    given = options.parse(HERE | {"password": "correct horse"})
    kept = options.parse(HERE | {"passwordFile": str(file)})

    assert given.where.password == kept.where.password == "correct horse"
    assert "horse" not in f"{given!r} {kept!s}"
