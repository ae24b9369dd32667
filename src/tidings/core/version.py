"""The version of Tidings. It is a constant, because a deployed function has no package metadata."""

from __future__ import annotations

VERSION = "0.1.0"
