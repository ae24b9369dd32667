"""The data source and sink `tidings`."""
