"""Lambda in LocalStack without Docker. Runs inside LocalStack, without Tidings."""
