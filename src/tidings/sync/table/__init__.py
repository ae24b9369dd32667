"""`tidings sync table`: compare a feed with a table in use, chunk by chunk."""
