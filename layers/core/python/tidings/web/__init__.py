"""
The wire over HTTP, for any host: what a request says, what answers it, and how.

A host makes a `Request` of what it received, has `answers.respond` answer it, and sends the
`Answer`. Streams and long polls are ASGI apps (`sse`, `change_lists`, `replication_pages`).
"""
