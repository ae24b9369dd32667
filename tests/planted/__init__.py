"""Secrets are planted, and searched for in all readable places."""
