"""
What the followers of every feed are called, for those who look at their checkpoints alone.

They stand apart from `follower`, so that a reader does not load what runs one.
"""

from __future__ import annotations

from tidings.core.followers.lanes import PUSH

STATE, ARCHIVE = "state", "archive"
FOLLOWERS = (STATE, PUSH)  # of every feed; `archive` is there where a deployment has one
