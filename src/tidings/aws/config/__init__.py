"""
What a deployment says: settings, functions, routes, tables, metrics.

These are tables of data that the infrastructure and the local twin read too.
"""
