"""
How requests reach DynamoDB and how answers are read: batches, conditional writes, queries, and
the shortcuts past boto3.
"""
