"""What has to hold where a page is appended."""

from __future__ import annotations

from typing import Protocol


class Precondition(Protocol):
    """What has to hold where a page is appended."""

    def check(self) -> None:
        """
        As far as the log can be read now.

        Raises:
            Rejected: it does not hold.
        """

    def check_before(self, number: int) -> None:
        """
        At page *number*, which is the caller's, as far as all that comes before it.

        Raises:
            Rejected: it does not hold.
            Unavailable: a writer in flight before it takes too long.
        """
