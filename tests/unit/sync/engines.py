"""Which tests of syncs run on both engines; the others run on Sail alone (ADR 59)."""

from __future__ import annotations

import pytest

_SPARK = pytest.param("spark", marks=pytest.mark.spark)
_EACH = (_SPARK, "sail")

on_both = pytest.mark.parametrize("session", _EACH, indirect=True)
on_spark = pytest.mark.parametrize("session", [_SPARK], indirect=True)
synced_by_both = pytest.mark.parametrize("synced", _EACH, indirect=True)
