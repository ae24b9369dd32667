"""
The edge of Tidings: AWS on one side, the core's ports on the other.

The only place where boto3 appears, the environment is read and the clock is looked at.
"""
