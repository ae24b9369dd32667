"""Changes, as clients of changeagent post and list them, and webhooks that can veto a change."""
