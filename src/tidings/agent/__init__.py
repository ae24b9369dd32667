"""The agent on a producer's host: receives operations over UDP and HTTP, queues and posts them.

`receiver` (a separate process) and `http` write to the queue on disk, `intake` checks the
datagrams, and `sender` posts batches. These parts share only the queue (`queue`). `command` starts
and stops them.
"""
