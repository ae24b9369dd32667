"""
The transports of a feed: Server-Sent Events and WebSocket, blocking and for asyncio, and plain
requests.
"""
