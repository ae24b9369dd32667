"""What is closed at the end of a `with`."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Whoever inherits it has `close`, without arguments."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
