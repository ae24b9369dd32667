"""The stage in LocalStack: `make localstack` (docs/operations/TESTING.md)."""
