"""Webhooks, external endpoints that receive the events of a feed through a named consumer.

The package decides which events are sent to a webhook, how a request is signed, when a message is
sent again, and when a message is parked, that is, set aside for an operator. (The webhooks of
`changeagent.webhooks` are different: they are called before a change is appended.)
"""
