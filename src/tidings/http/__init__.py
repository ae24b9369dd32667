"""
The wire over HTTP, for any host: what a request says, what answers it, and how.

A host makes a `Request` of what it received, has `answers.respond` answer it, and sends the
`Answer`: `endpoints`. Streams and long polls are ASGI apps: `streams`, `durable_streams`.
"""
