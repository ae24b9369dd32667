"""The port of the archive: what is deployed, and the twin's folder, have its methods too."""

from __future__ import annotations

import inspect

import pytest
from tidings.aws.folder_archive import FolderArchive
from tidings.aws.s3_archive import S3Archive
from tidings.core import archive_ports

from tests.unit.test_ports import methods


@pytest.mark.parametrize("adapter", [S3Archive, FolderArchive])
@pytest.mark.parametrize("port", [archive_ports.ArchiveStore, archive_ports.ArchiveSizes])
def test_an_adapter_has_the_methods_of_its_port(port: type, adapter: type) -> None:
    """With the very same arguments, defaults and types."""
    for method, signature in methods(port).items():
        assert inspect.signature(getattr(adapter, method)) == signature
