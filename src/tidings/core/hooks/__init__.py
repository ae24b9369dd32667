"""
Webhooks, which are external endpoints that receive the events of a feed by a named consumer.

The package decides which events are sent to them, how a request is signed, when it is sent again,
and when it is parked. (The webhooks of `changeagent.webhooks` are different: they are called before
a change is appended.)
"""
