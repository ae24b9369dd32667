"""The core of Tidings: the logic of a change feed, without side effects.

No module in this package imports AWS or reads the clock, the environment or a source of randomness.
Time, ids and stores are arguments. The required effects are declared in `effects` and in the
`stores` module of each package.
"""
