"""
Changes, as clients of changeagent post and list them.

This package decides how an entry of the log is shown to these clients, which webhooks can veto a
change, and which settings operators have.
"""
