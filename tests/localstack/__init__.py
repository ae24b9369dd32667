"""The stage in LocalStack: `make test-localstack` (docs/operations/TESTING.md)."""
