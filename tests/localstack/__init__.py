"""The stage in LocalStack: `make localstack` (docs/EMULATORS.md)."""
