"""The descriptions of AWS's services that boto3 reads: kept for as long as the tests run."""

from __future__ import annotations

from typing import Any, ClassVar

from botocore.loaders import JSONFileLoader, Loader


class _Kept(JSONFileLoader):
    """Reads each file once, whichever session asks."""

    _found: ClassVar[dict[str, Any]] = {}

    def load_file(self, file_path: str) -> Any:
        if file_path not in self._found:
            self._found[file_path] = super().load_file(file_path)
        return self._found[file_path]


def keep() -> None:
    """Moto gives each test a new session, which would parse 2 MB of JSON again: of a test of a
    handler a third of the time.
    """
    Loader.FILE_LOADER_CLASS = _Kept
