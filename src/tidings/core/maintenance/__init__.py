"""
Maintenance of a deployment.

This package decides which functions the sweep wakes, which pages retention removes, which fields a
status reports, and how the state is verified, rebuilt and restored.
"""
