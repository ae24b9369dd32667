"""
The core's stores on one SQLite file.

They fulfil the same contracts as the stores on DynamoDB (`tests/contract`). When a call returns,
its writes are on disk: SQLite syncs its write-ahead log at each commit.
"""
