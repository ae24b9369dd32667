"""
How a feed is reached: Server-Sent Events and WebSocket, blocking and for asyncio, and plain
requests.
"""
