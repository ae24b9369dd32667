"""
The core of Tidings: what a change feed decides, without any effect.

Nothing below this package imports AWS, reads the clock, the environment or a source of
randomness; time, ids and stores are arguments. The effects it needs are named in `effects` and in
`stores` of each package.
"""
