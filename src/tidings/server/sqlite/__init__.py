"""The stores of the core on one SQLite file, with the same contracts as those on DynamoDB."""
