"""Secrets are planted and looked for in everything that anybody could read."""
