"""The HTTP layer of a server or a Lambda function: requests, responses and endpoints.

A host builds a `Request` from the received data, calls `answers.respond` with an endpoint (package
`endpoints`), and sends the `Answer`. Streams and long polls are ASGI apps (`streams`,
`durable_streams`).
"""
