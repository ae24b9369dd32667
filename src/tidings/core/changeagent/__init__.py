"""Changes, as clients of changeagent post and list them, with webhooks that can veto one."""
