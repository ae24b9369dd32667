"""
The configuration of a deployment: settings, functions, routes, tables, metrics.

The modules hold tables of data that the infrastructure and the local twin read too.
"""
