"""The twin's API Gateway: HTTP and WebSocket in front of the functions, and who may come to it."""
