"""
The name by which functions are called; apart from `deployment`, which takes 30 ms to import.

An alias leads to one version of a function's code, or to two while a release is tried on a tenth
of the calls (ADR 54). `stream` alone has none: clients have the address of the function itself.
"""

LIVE = "live"
