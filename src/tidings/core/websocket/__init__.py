"""Subscriptions over WebSocket: the function that serves a connection, and its messages."""
