"""The version of Tidings, as a constant, because a deployed function has no package metadata."""

from __future__ import annotations

VERSION = "0.1.0"
