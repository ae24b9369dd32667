"""
The HTTP layer, for any host: requests, responses, and the endpoints between them.

A host builds a `Request` from the received data, calls `answers.respond`, and sends the `Answer`
(package `endpoints`). Streams and long polls are ASGI apps: `streams`, `durable_streams`.
"""
