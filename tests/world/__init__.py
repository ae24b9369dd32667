"""A server against third-party software: proxies, scrapers and clients from package registries."""
