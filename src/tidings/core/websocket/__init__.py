"""Subscriptions over WebSocket: which function serves a connection, and what it is sent."""
