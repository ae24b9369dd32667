"""
The twin's API Gateway: the HTTP and WebSocket APIs of the functions, with host and origin checks.
"""
