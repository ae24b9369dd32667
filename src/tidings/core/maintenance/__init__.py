"""Maintenance: the sweep, retention and the status; verify, rebuild and restore the state."""
