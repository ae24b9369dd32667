"""The feed in a simulated world: many seeds, every fault, the promises checked."""
