"""
What keeps a deployment in order.

It decides what the sweep wakes, what retention removes, what a status says, and how the state is
verified, rebuilt and restored.
"""
