"""What is closed at the end of a `with`."""

from __future__ import annotations

from typing import Self


class Closing:
    """Whoever inherits it has `close`, without arguments."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
