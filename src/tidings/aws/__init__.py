"""
The adapters of the core's ports to AWS.

Only this package imports boto3, reads the environment and reads the clock.
"""
