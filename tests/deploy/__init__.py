"""Updates: what the release before this one deployed and stored, and what is made of it today."""
