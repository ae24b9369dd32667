"""The tables of a deployment: settings, functions, routes, tables and metrics."""
