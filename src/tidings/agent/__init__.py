"""
The agent beside a producer: takes operations over UDP and HTTP, keeps them on disk, posts them.

`receiver` (a process of its own) and `http` put into the queue, `intake` makes lines of the
datagrams, `sender` posts batches. They meet in `store` and nowhere else; `running` ties them.
"""
