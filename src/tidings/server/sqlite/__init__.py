"""
The stores of the core on one SQLite file.

They keep the contracts that those on DynamoDB keep (`tests/contract`). A call that returned is
on disk: SQLite syncs its write-ahead log at each commit.
"""
