"""Write the pages of the log to the archive, a cheap store; read and compact the archive."""
