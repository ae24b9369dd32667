"""The version, for the header `Server`: a deployed function has no package metadata to ask."""

from __future__ import annotations

VERSION = "0.1.0"
