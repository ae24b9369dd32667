"""The twin's DynamoDB: DynamoDB Local, its processes, and the tables of the deployment."""
