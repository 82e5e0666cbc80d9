"""Gives pools the cards that they want: the executors of `PoolScaled`."""
