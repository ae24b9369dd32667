"""
The alias by which functions are called; separate from `deployment`, which takes 30 ms to import.

An alias points to one version of a function's code, or to two while a release is tried on a tenth
of the calls (ADR 54). Only `stream` has no alias: its clients use the address of the function
itself.
"""

LIVE = "live"
