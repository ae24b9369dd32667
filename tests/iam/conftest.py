"""The cloud of the functions' own tests."""

from __future__ import annotations

from tests.functions.conftest import cloud as cloud
