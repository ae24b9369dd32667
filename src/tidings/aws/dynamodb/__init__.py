"""
The stores on DynamoDB, an adapter of a port each.

Keys and attributes are in `items`, how requests are sent in `transport`.
"""
