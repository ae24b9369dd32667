"""
Who may do what at a feed: passwords, keys and tokens.

It decides what a credential allows, how fast it may be guessed or used, and how keys are issued.
"""
