"""
Clients of external systems: an upstream feed, a token issuer, webhooks, an archive folder; bcrypt.
"""
