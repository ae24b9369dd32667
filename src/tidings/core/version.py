"""The version for the header `Server`, because a deployed function has no package metadata."""

from __future__ import annotations

VERSION = "0.1.0"
