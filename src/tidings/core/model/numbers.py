"""
Whole numbers that somebody outside wrote: the one place where their text becomes a number.

Python takes time in the square of the digits, and refuses more than 4,300 of them with an error
that nobody expects; so a text is measured before it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.core.errors import Rejected


def whole(text: str, least: int, most: int) -> int:
    """
    *text*, decimal digits alone, as a number from *least* to *most*, neither below 0.

    Raises:
        ValueError: it is none; the text of the error is the rule.
    """
    digits = text.isascii() and text.isdigit()
    if digits and len(text) <= len(str(most)) and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"must be a whole number from {least} to {most}")


def whole_in(text: str, field: str, least: int, most: int, wrong: type[Rejected]) -> int:
    """
    As `whole`, of the *field* of a request.

    Raises:
        wrong: it is none; field, value and rule are named.
    """
    try:
        return whole(text, least, most)
    except ValueError as error:
        raise wrong(str(error), field=field, value=text) from None
