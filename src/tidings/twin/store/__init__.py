"""
The twin's DynamoDB: DynamoDB Local, started, stopped and filled with the tables of the
deployment.
"""
