"""
Parse whole numbers from external text. All such text is converted here.

Python needs quadratic time in the number of digits, and raises an unrelated error for more than
4,300 digits. The length is therefore checked before the conversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.core.errors import Rejected


def whole(text: str, least: int, most: int) -> int:
    """
    Return *text*, which contains only decimal digits, as an integer.

    *least* and *most* are the inclusive limits; neither is negative.

    Raises:
        ValueError: the text is not such a number; the error's text is the rule.
    """
    digits = text.isascii() and text.isdigit()
    if digits and len(text) <= len(str(most)) and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"must be a whole number from {least} to {most}")


def whole_in(text: str, field: str, least: int, most: int, wrong: type[Rejected]) -> int:
    """
    Return the text of the request field *field* as an integer, see `whole`.

    Raises:
        wrong: the text is not such a number; the error names the field, the value and the rule.
    """
    try:
        return whole(text, least, most)
    except ValueError as error:
        raise wrong(str(error), field=field, value=text) from None
