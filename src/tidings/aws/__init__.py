"""The adapters of the core to AWS: only this package imports boto3 and reads the environment."""
