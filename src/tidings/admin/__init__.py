"""What the operator of a deployed feed does by command: settings and passwords of its feeds."""
