"""
The agent on a producer's host: receives operations over UDP and HTTP, queues and posts them.

`receiver` (a separate process) and `http` put into the queue on disk, `intake` checks the
datagrams, `sender` posts batches. They share only `queue`; `command` starts and stops them.
"""
