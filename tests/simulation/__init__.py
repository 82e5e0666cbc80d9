"""The whole flow in one process: one seed, one virtual clock, workloads and faults.

`people` ask, `fleet` works, `cluster` decides (the real rules, the real writer), `faults` breaks;
`watch` follows every committed record and holds what must always be true. `bugs` are broken on
purpose, so that the watch is seen to see. `python -m tests.simulation --seed N` repeats a seed.
"""
