"""The spill in files keeps its contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.spill import SpillContract
from tidings.admin.examining import FileSpill


class TestFileSpill(SpillContract):
    @pytest.fixture
    def spill(self, tmp_path: Path) -> FileSpill:
        return FileSpill(tmp_path)
