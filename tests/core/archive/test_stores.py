"""The port of the archive: what is deployed, and the twin's folder, have its methods too."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.s3.archive import S3Archive
from tidings.core.archive.stores import ArchiveStore
from tidings.web.outbound.folder_archive import FolderArchive

from tests.core.test_stores import methods


@pytest.mark.parametrize("adapter", [S3Archive, FolderArchive])
def test_an_adapter_has_the_methods_of_its_port(adapter: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(ArchiveStore).items():
        assert inspect.signature(getattr(adapter, method)) == signature
