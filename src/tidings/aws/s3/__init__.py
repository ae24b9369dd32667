"""The archive, plans and documents on S3, and the archive in a folder."""
