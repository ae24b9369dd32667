"""Adapters for upstreams, token issuers, webhooks, archive folders, and bcrypt."""
