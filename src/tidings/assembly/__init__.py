"""The object graph of a feed, built from the stores of a host (a server or a Lambda function)."""
