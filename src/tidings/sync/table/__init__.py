"""`tidings sync table`: a feed is compared with a table that goes on changing, chunk by chunk."""
