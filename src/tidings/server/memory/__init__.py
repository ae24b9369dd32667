"""
The stores of what ends with the process: connections, leases, what keys hold open.

Tests use them, too, in place of the stores of other hosts.
"""
