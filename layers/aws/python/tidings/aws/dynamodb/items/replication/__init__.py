"""
The items of chained feeds:

where a copy stands, how its upstream is asked, who leads a cluster.
"""
