"""The follower `state`: the latest operation of each object, with removed parents and sums."""
