"""The settings of a feed, which its owner changes, and the revocation of admissions."""
