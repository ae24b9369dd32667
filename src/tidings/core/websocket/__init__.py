"""
Subscriptions over WebSocket.

This package decides which function serves a connection, which messages the connection is sent, and
how a message that does not arrive is handled.
"""
