"""
Webhooks that are told what happened: endpoints of others, each behind a named consumer.

It decides what is sent to them and how it is signed, when it is tried again, and when it is given
up. (`changeagent.webhooks` are others: they are asked before a change is appended.)
"""
