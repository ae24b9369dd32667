"""A base class for objects that are closed at the end of a `with`."""

from __future__ import annotations

from typing import Self


class Closing:
    """A context manager that calls `close` at its end. Subclasses implement `close`."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
