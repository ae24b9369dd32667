"""
Subscriptions over WebSocket.

It decides which function serves a connection, which messages it is sent, and what becomes of a
message that does not arrive.
"""
