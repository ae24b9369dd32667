"""The core's stores on one SQLite file, with the contracts of those on DynamoDB."""
