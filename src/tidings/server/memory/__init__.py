"""
Stores of data that ends with the process: connections, leases, and open streams of keys.

Tests also use them in place of the stores of other hosts.
"""
