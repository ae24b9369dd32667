"""
The composition root: settings become adapters, adapters become what a handler calls.

Its modules form a tree; `core` is the part that most handlers call.
"""
