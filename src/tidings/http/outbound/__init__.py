"""Clients of external systems: upstream, token issuer, webhooks, archive folder; bcrypt."""
