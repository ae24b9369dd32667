"""The description of a deployment: its settings, functions, tables and names."""
