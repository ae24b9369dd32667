"""Write the pages of the log to the archive, which is cheap storage; read and compact them."""
