"""
Changes, as clients of changeagent post and list them.

It decides how an entry of the log is shown to them, which webhooks are asked, and what operators
may configure.
"""
