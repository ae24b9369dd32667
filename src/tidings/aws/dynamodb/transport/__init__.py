"""
Requests to DynamoDB and their answers: batches, conditional writes, queries, and faster
replacements for parts of boto3.
"""
